"""``agentrl train``: the training run."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.cli.console import ConsoleWatcher, print_summary
from agentrl.cli.stopping import INTERRUPTED, Stopping, run_stoppable
from agentrl.errors import AgentrlError, SettingsError, UsageError
from agentrl.plugins import load_plugins
from agentrl.rollout.assembly import LOGS, assemble
from agentrl.rollout.board import Board
from agentrl.rollout.lines import read_lines
from agentrl.rollout.metrics import FILE as METRICS
from agentrl.rollout.plan import Plan, make_plan
from agentrl.rollout.plot import plot_reward
from agentrl.rollout.run import open_run
from agentrl.rollout.saved import load_values, save_plan
from agentrl.settings import Resolved, resolve
from agentrl.trainer import TrainSpec

CHECKPOINTS = "checkpoints"
FAILED = 1

_log = logging.getLogger(__name__)


def train(
    assignments: Assignments = None,
    resume: Annotated[str, typer.Option(metavar="ID", help="Go on with this run (id or folder).")] = "",
    name: Annotated[str, typer.Option(metavar="ID", help="Id of the new run; default: time, seed, pid.")] = "",
) -> int:
    """Train to the end, or until stopped; an interrupted run (exit code 130) goes on with --resume."""
    console = Console()
    with ExitStack() as stack:
        resolved = resolve(overrides=read_assignments(assignments))
        directory, plan = _resumed(resume, resolved) if resume else _new(name, resolved)
        stack.enter_context(_locked(directory))
        save_plan(plan, directory)
        _log_to(directory / LOGS / "agentrl.log")
        code, ended = _run(plan, directory, console)
        if code:
            hint = f"{ended}; go on with: agentrl train --resume {escape(directory.name)}"
            console.print(hint, highlight=False, soft_wrap=True)
        _summarise(directory, console)
    return code


def _run(plan: Plan, directory: Path, console: Console) -> tuple[int, str]:
    """The exit code, and what it means. Raises: UsageError for what could be seen only once the parts were started."""
    try:
        run_stoppable(partial(_train, plan, directory, console), console.print)
    except KeyboardInterrupt:
        return INTERRUPTED, "[yellow]interrupted[/]"
    except UsageError:
        raise
    except AgentrlError as error:
        _log.exception("the run failed")
        return FAILED, f"[red]failed[/]: {escape(str(error))}\n(more in {escape(str(directory / LOGS))})"
    return 0, ""


async def _train(plan: Plan, directory: Path, console: Console, stopping: Stopping) -> None:
    settings, trainer = plan.settings, plan.parts.trainer
    assert settings.model is not None, "a checked plan has a model"
    checkpoints = directory / CHECKPOINTS
    spec = TrainSpec(
        model_dir=settings.model,
        checkpoint_dir=checkpoints,
        log_dir=directory / LOGS,
        dtype=settings.dtype,
        seed=settings.seed,
        first_iteration=trainer.last_checkpoint(checkpoints),
        iterations=settings.iterations,
        checkpoint_every=settings.checkpoint_every,
        context_tokens=settings.context_tokens,
        temperature=settings.temperature,
    )
    history = [row.get("reward", 0.0) for row in read_lines(directory / METRICS)]
    console.print(
        f"[bold]{escape(settings.agent)}[/] in [bold]{escape(settings.sandbox)}[/] sandboxes, {len(plan.tasks)} tasks of "
        f"{escape(settings.train_protocol)}, engine {escape(settings.engine)}, trainer {escape(settings.trainer)}\n"
        f"run: {escape(str(directory))}",
        highlight=False,
        soft_wrap=True,
    )
    board = Board(directory / "tensorboard")
    with ConsoleWatcher(console, board, total=settings.iterations, history=history) as watcher:
        async with assemble(plan, directory, tell=lambda what: watcher.phase(spec.first_iteration, what)) as assembly:
            stopping.hurry = assembly.parts.lease.hurry
            run = open_run(
                directory,
                spec=spec,
                engine=assembly.engine,
                settings=settings,
                tasks=plan.tasks,
                run_one=assembly.run_one,
                watcher=watcher,
                announce=plan.plugins.announce,
                ahead=assembly.ahead,
            )
            try:
                await trainer.train(run)
            finally:
                run.close()


def _new(name: str, resolved: Resolved) -> tuple[Path, Plan]:
    plan = make_plan(resolved, load_plugins(resolved)).require()
    name = name or f"{time.strftime('%Y%m%d-%H%M%S')}-{plan.settings.seed}-{os.getpid()}"
    directory = (plan.settings.run_dir / name).resolve()
    if (directory / METRICS).exists():
        raise SettingsError(
            f"{directory} holds a run already; go on with it by --resume {name}, or choose another name"
        )
    return directory, plan


def _resumed(name: str, now: Resolved) -> tuple[Path, Plan]:
    """The run's own settings; what is set now wins."""
    directory = (Path(name) if os.sep in name else now.settings.run_dir / name).resolve()
    resolved = resolve({**load_values(directory), **now.values})
    return directory, make_plan(resolved, load_plugins(resolved)).require()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One process a run. Raises: UsageError when another one has it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{directory} is in use by another process") from error
        yield


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)


def _summarise(directory: Path, console: Console) -> None:
    rows = list(read_lines(directory / METRICS))
    plot = directory / "reward.png"
    if rows:
        plot_reward(rows, plot, title=directory.name)
    print_summary(console, rows, directory, plot if rows else None)
