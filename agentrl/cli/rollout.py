"""``agentrl rollout``: rollouts without training. What does this combination do?"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.cli.stopping import INTERRUPTED, Stopping, run_stoppable
from agentrl.errors import UsageError
from agentrl.plugins import load_plugins
from agentrl.rollout.assembly import assemble
from agentrl.rollout.journal import FILE, encode
from agentrl.rollout.lines import Lines
from agentrl.rollout.plan import Plan, make_plan
from agentrl.rollout.pool import run_groups
from agentrl.rollout.saved import save_plan
from agentrl.settings import did_you_mean, resolve
from agentrl.types import Rollout, Task


def rollout(
    assignments: Assignments = None,
    task: Annotated[str, typer.Option(metavar="ID", help="Which task; default: the first of SWE_TRAIN_DATA.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many rollouts of it.")] = 1,
) -> int:
    """Make rollouts of one task without training and print how they ended; exit code 1 when one was aborted."""
    console = Console()
    resolved = resolve(overrides=read_assignments(assignments))
    plan = make_plan(resolved, load_plugins(resolved), purpose="rollout").require()
    chosen = _choose(plan.tasks, task)
    directory = (plan.settings.run_dir / f"rollout-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}").resolve()
    save_plan(plan, directory)
    try:
        rollouts = run_stoppable(partial(_roll, plan, chosen, count, directory, console), console.print)
    except KeyboardInterrupt:
        console.print(f"[yellow]interrupted[/]; journal: {directory / FILE}", highlight=False, soft_wrap=True)
        return INTERRUPTED
    console.print(_table(rollouts))
    console.print(f"journal: {directory / FILE}", highlight=False, soft_wrap=True)
    return int(any(r.reward is None for r in rollouts))


async def _roll(
    plan: Plan, task: Task, count: int, directory: Path, console: Console, stopping: Stopping
) -> Sequence[Rollout]:
    journal = Lines(directory / FILE)
    with console.status("starting") as status:
        async with assemble(plan, directory, tell=status.update) as assembly:
            stopping.hurry = assembly.parts.lease.hurry
            status.update(f"{count} rollouts of {escape(task.id)}")
            [group] = await run_groups(
                [task],
                iteration=0,
                group_size=count,
                concurrency=plan.settings.concurrency,
                run_one=assembly.run_one,
                done={},
                finished=lambda rollout: journal.append(encode(rollout)),
                waiting=assembly.ahead.want,
            )
    journal.close()
    return group.rollouts


def _choose(tasks: Sequence[Task], name: str) -> Task:
    if not name:
        return tasks[0]
    by_id = {task.id: task for task in tasks}
    if name not in by_id:
        raise UsageError(f"there is no task {name}.{did_you_mean(name, by_id)}")
    return by_id[name]


def _table(rollouts: Sequence[Rollout]) -> Table:
    table = Table()
    for head in ("rollout", "task", "ended", "reward", "turns", "tokens", "seconds", "message"):
        table.add_column(head, justify="right" if head in ("reward", "turns", "tokens", "seconds") else "left")
    for r in rollouts:
        tokens = sum(len(turn.generation.ids) for turn in r.trajectory.turns)
        reward = "-" if r.reward is None else f"{r.reward:g}"
        turns, seconds = str(len(r.trajectory.turns)), f"{r.seconds['total']:.1f}"
        words = escape(r.task_id), r.exit_status, reward, turns, str(tokens), seconds, escape(r.message)
        table.add_row(r.id, *words)
    return table
