"""``agentrl eval``: how often does this combination solve the tasks of a data set?

Any engine will do: one that we start, a running one, or a model behind an OpenAI- or Anthropic-compatible API
(``AGENTRL_ENGINE=openai:https://…/v1``), which gives no tokens and needs none here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from agentrl.cli.assignments import DataAndAssignments, read_data_assignments
from agentrl.cli.stopping import INTERRUPTED, Stopping, run_stoppable
from agentrl.errors import SettingsError, UsageError
from agentrl.plugins import load_plugins
from agentrl.rollout.assembly import assemble
from agentrl.rollout.evaluate import results
from agentrl.rollout.journal import FILE, encode, read_journal
from agentrl.rollout.lines import Lines
from agentrl.rollout.plan import Plan, make_plan
from agentrl.rollout.pool import run_groups
from agentrl.rollout.saved import load_values, save_plan
from agentrl.settings import resolve
from agentrl.types import Rollout

RESULTS = "eval.json"


def evaluate(
    words: DataAndAssignments = None,
    attempts: Annotated[int, typer.Option("--attempts", "-n", min=1, help="Rollouts of each task.")] = 1,
    k: Annotated[str, typer.Option(metavar="K,...", help="For which k; default: 1 and the number of attempts.")] = "",
    resume: Annotated[str, typer.Option(metavar="ID", help="Go on with this evaluation (id or folder).")] = "",
) -> int:
    """Measure pass@k on DATA (or SWE_EVAL_DATA); exit code 1 when more attempts aborted than AGENTRL_MAX_ABORTED_SHARE."""
    wanted = _ks(k, attempts)
    directory, plan = _plan(read_data_assignments(words, "SWE_EVAL_DATA"), resume)
    save_plan(plan, directory)
    console = Console()
    try:
        rollouts = run_stoppable(partial(_evaluate, plan, directory, attempts, console), console.print)
    except KeyboardInterrupt:
        console.print(f"[yellow]interrupted[/]; go on with: agentrl eval --resume {directory.name} -n {attempts}")
        return INTERRUPTED
    found = {**_header(plan), **results(rollouts, wanted)}
    _write(directory / RESULTS, found)
    show(found, console)
    console.print(f"results: {escape(str(directory / RESULTS))}", highlight=False, soft_wrap=True)
    return int(found["attempts"] - found["graded"] > plan.settings.max_aborted_share * found["attempts"])


def show(found: Mapping[str, Any], console: Console) -> None:
    """Print the results."""
    table = Table(title=f"{found['agent']} with {found['model']} on {found['data']}", title_justify="left")
    for head in ("", "pass@k", "95 %", "tasks"):
        table.add_column(head, justify="left" if not head else "right")
    for name, estimates in (("all", found["pass_at_k"]), *found["pass_at_k_by_level"].items()):
        for size, e in estimates.items():
            interval = f"{e['low']:.3f} – {e['high']:.3f}"
            table.add_row(f"{escape(name)}, k = {size}", f"{e['value']:.3f}", interval, str(e["tasks"]))
    console.print(table)
    endings = ", ".join(f"{count} {status}" for status, count in sorted(found["exit_status"].items()))
    console.print(f"{found['attempts']} attempts at {found['tasks']} tasks: {endings}", highlight=False)


async def _evaluate(plan: Plan, directory: Path, attempts: int, console: Console, stopping: Stopping) -> list[Rollout]:
    """All rollouts. What the journal holds is not made again, unless it aborted."""
    journal = Lines(directory / FILE)
    done = {r.id: r for r in read_journal(journal.path) if r.reward is not None}
    total = attempts * len(plan.tasks)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("starting", total=total, completed=min(len(done), total))

            def finished(rollout: Rollout) -> None:
                journal.append(encode(rollout))
                plan.plugins.announce("agentrl_rollout_finished", rollout=rollout)
                progress.update(bar, advance=1, description="evaluating")
                if rollout.reward is None:
                    told = escape(f"{rollout.id} aborted: {rollout.exit_status}: {rollout.message}")
                    console.print(f"[yellow]{told}[/]", highlight=False, soft_wrap=True)

            def tell(what: str) -> None:
                progress.update(bar, description=escape(what))

            async with assemble(plan, directory, tell=tell) as assembly:
                stopping.hurry = assembly.parts.lease.hurry
                groups = await run_groups(
                    plan.tasks,
                    iteration=0,
                    group_size=attempts,
                    concurrency=plan.settings.concurrency,
                    run_one=assembly.run_one,
                    done=done,
                    finished=finished,
                    waiting=assembly.ahead.want,
                )
    finally:
        journal.close()
    return [rollout for group in groups for rollout in group.rollouts]


def _plan(overrides: dict[str, str], resume: str) -> tuple[Path, Plan]:
    now = resolve(overrides=overrides)
    if not resume:
        plan = make_plan(now, load_plugins(now), purpose="eval").require()
        name = f"eval-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        return (plan.settings.run_dir / name).resolve(), plan
    directory = (Path(resume) if os.sep in resume else now.settings.run_dir / resume).resolve()
    resolved = resolve({**load_values(directory), **now.values})
    plan = make_plan(resolved, load_plugins(resolved), purpose="eval").require()
    _same_tasks(directory, plan)
    return directory, plan


def _same_tasks(directory: Path, plan: Plan) -> None:
    """A rollout's id counts tasks: they must be the same as before."""
    for rollout in read_journal(directory / FILE):
        place = int(rollout.group_id.rpartition("-g")[2])
        if place >= len(plan.tasks) or plan.tasks[place].id != rollout.task_id:
            raise UsageError(f"{directory} evaluated other tasks than SWE_EVAL_DATA has now: start a new evaluation")


def _ks(words: str, attempts: int) -> Iterable[int]:
    try:
        chosen = [int(word) for word in words.split(",")] if words else [1, attempts]
    except ValueError as error:
        raise SettingsError(f"--k {words}: expected numbers separated by commas") from error
    if not all(1 <= k <= attempts for k in chosen):
        raise SettingsError(f"--k {words}: must lie between 1 and the number of attempts ({attempts}, see --attempts)")
    return chosen


def _header(plan: Plan) -> dict[str, Any]:
    settings = plan.settings
    model = settings.remote_model if plan.remote else settings.model.resolve().name if settings.model else ""
    return {
        "data": settings.eval_data.name if settings.eval_data else "",
        "agent": settings.agent,
        "sandbox": settings.sandbox,
        "model": model,
        "engine": settings.engine,
        "temperature": settings.temperature,
    }


def _write(path: Path, found: Mapping[str, Any]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    temporary.replace(path)
