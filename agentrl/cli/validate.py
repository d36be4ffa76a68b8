"""``agentrl validate``: are the tasks fit for training?"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.lease import Lease
from agentrl.plugins import load_plugins
from agentrl.rollout.plan import Plan, make_plan
from agentrl.rollout.validate import Validated, quarantine
from agentrl.rollout.validate import validate as validate_tasks
from agentrl.sandbox import Sandbox
from agentrl.settings import resolve
from agentrl.types import SandboxSpec, Task


def validate(
    assignments: Assignments = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often the gold patch must pass.")] = 1,
    report: Annotated[Path | None, typer.Option(help="Write one JSON line for each task.")] = None,
) -> int:
    """Check each task of SWE_TRAIN_DATA: gold patch passes, doing nothing fails; exit code 1 when one is unfit."""
    resolved = resolve(overrides=read_assignments(assignments))
    plan = make_plan(resolved, load_plugins(resolved), purpose="validate").require()
    console = Console()
    rows = asyncio.run(_validate(plan, repeats, console))
    if report is not None:
        report.write_bytes(b"".join(orjson.dumps(row.to_json()) + b"\n" for row in rows))
    for task_id, reasons in quarantine(rows).items():
        console.print(f"[red]unfit[/] {task_id}: {'; '.join(reasons)}", highlight=False, soft_wrap=True)
    fit = sum(row.fit for row in rows)
    console.print(f"{fit} of {len(rows)} tasks are fit", highlight=False)
    return int(fit < len(rows))


async def _validate(plan: Plan, repeats: int, console: Console) -> list[Validated]:
    settings, parts = plan.settings, plan.parts
    ledger = settings.run_dir / "validate" / "ledger.jsonl"
    lease = Lease(
        parts.backend,
        run_id="validate",
        ledger=ledger,
        boot_concurrency=settings.boot_concurrency,
        boot_retries=settings.boot_retries,
    )

    def open_sandbox(task: Task) -> AbstractAsyncContextManager[Sandbox]:
        spec = SandboxSpec(image=task.image, resources=task.resources)
        return lease.open(spec, rollout_id=task.id, lifetime_sec=settings.sandbox_lifetime_sec)

    rows: list[Validated] = []
    try:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("validating", total=len(plan.tasks))
            async for row in validate_tasks(
                plan.tasks,
                parts.task_format,
                parts.grader,
                open_sandbox,
                repeats=repeats,
                concurrency=settings.boot_concurrency,
                timeout_sec=settings.eval_timeout_sec,
            ):
                rows.append(row)
                progress.advance(bar)
    finally:
        await lease.aclose()
        await parts.backend.aclose()
    return sorted(rows, key=lambda row: row.task_id)
