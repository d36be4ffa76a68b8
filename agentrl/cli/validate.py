"""``agentrl validate``: are the tasks fit for training?

Each task's row is written to the report as it is done, and a second run checks only what the report does not settle. The
unfit tasks go to the quarantine file, which training honours.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agentrl.cli.assignments import DataAndAssignments, read_data_assignments
from agentrl.cli.stopping import INTERRUPTED, Stopping, run_stoppable
from agentrl.lease import make_lease
from agentrl.lease.ledger import FILE as LEDGER
from agentrl.plugins import load_plugins
from agentrl.rollout.data import quarantine_path, write_quarantine
from agentrl.rollout.lines import Lines, read_lines
from agentrl.rollout.plan import Plan, make_plan
from agentrl.rollout.validate import Validated, quarantine, still_valid
from agentrl.rollout.validate import validate as validate_tasks
from agentrl.sandbox import Sandbox
from agentrl.settings import resolve
from agentrl.types import Task

VALIDATE: Final = "validate"


def validate(
    words: DataAndAssignments = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often the gold patch must pass.")] = 1,
    report: Annotated[Path | None, typer.Option(help="The report; default: in AGENTRL_RUN_DIR/validate.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Check also what the report has settled.")] = False,
) -> int:
    """Check each task of DATA (or SWE_TRAIN_DATA): gold patch passes, doing nothing fails; exit code 1 when one is unfit."""
    resolved = resolve(overrides=read_data_assignments(words, "SWE_TRAIN_DATA"))
    plan = make_plan(resolved, load_plugins(resolved), purpose=VALIDATE).require()
    data = plan.settings.train_data
    assert data is not None, "a checked plan has data"
    path = report or plan.settings.run_dir / VALIDATE / f"{data.name}.jsonl"
    console = Console()
    try:
        rows = _check(plan, path, repeats, console, again=again)
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/]; what is settled is in the report, the same command goes on")
        return INTERRUPTED
    unfit = quarantine(rows)
    listed = quarantine_path(data, plan.settings.quarantine)
    write_quarantine(listed, unfit)
    for task_id, reasons in unfit.items():
        console.print(f"[red]unfit[/] {escape(task_id)}: {escape('; '.join(reasons))}", highlight=False, soft_wrap=True)
    console.print(f"{len(rows) - len(unfit)} of {len(rows)} tasks are fit", highlight=False)
    console.print(f"report: {escape(str(path))}", highlight=False, soft_wrap=True)
    if unfit:
        console.print(f"quarantine, which training honours: {escape(str(listed))}", highlight=False, soft_wrap=True)
    return int(bool(unfit))


def _check(plan: Plan, path: Path, repeats: int, console: Console, *, again: bool) -> list[Validated]:
    """The rows of all tasks, in the order of the data."""
    known = {} if again else still_valid(map(Validated.from_json, read_lines(path)), plan.tasks, repeats)
    left = [task for task in plan.tasks if task.id not in known]
    if known:
        console.print(f"{len(known)} of {len(plan.tasks)} tasks are settled by {escape(str(path))}", highlight=False)
    lines = Lines(path)
    columns = (
        TextColumn("validating"),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("validating", total=len(plan.tasks), completed=len(known))

        def done(row: Validated) -> None:
            known[row.task_id] = row
            lines.append(row.to_json())
            progress.advance(bar)

        try:
            run_stoppable(partial(_validate, plan, left, repeats, done), console.print)
        finally:
            lines.close()
    return [known[task.id] for task in plan.tasks]


async def _validate(
    plan: Plan, tasks: Sequence[Task], repeats: int, done: Callable[[Validated], None], stopping: Stopping
) -> None:
    settings, parts = plan.settings, plan.parts
    # Not just its name: on another host, with the same account, somebody may validate too.
    run_id = f"{VALIDATE}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    lease = make_lease(parts.backend, settings, run_id=run_id, ledger=settings.run_dir / VALIDATE / LEDGER)
    stopping.hurry = lease.hurry

    def open_sandbox(task: Task) -> AbstractAsyncContextManager[Sandbox]:
        return lease.open(task.machine, rollout_id=task.id, lifetime_sec=settings.sandbox_lifetime_sec)

    try:
        async for row in validate_tasks(
            tasks,
            parts.task_format,
            parts.grader,
            open_sandbox,
            repeats=repeats,
            concurrency=settings.boot_concurrency,
            timeout_sec=settings.eval_timeout_sec,
        ):
            done(row)
    finally:
        await lease.aclose()
        await parts.backend.aclose()
