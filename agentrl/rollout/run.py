"""A training run as the trainer sees it, and as it lies on disk.

``runs/<id>/`` holds ``plan.json`` (resolved settings and parts), ``journal.jsonl`` (every rollout), ``metrics.jsonl`` (one
object for each iteration), ``ledger.jsonl`` (every machine), ``checkpoints/``, ``tensorboard/``, ``logs/`` and
``reward.png``. Everything is appended or renamed into place, so a run may be killed at any moment and resumed: rollouts that
the journal holds are not made again, iterations that ``metrics.jsonl`` holds are not reported again. Only rollouts that were
aborted in an iteration that never ended are tried again, for they may be what ended the run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Protocol

from agentrl.engine import Engine
from agentrl.errors import TrainerError
from agentrl.rollout.ahead import Ahead
from agentrl.rollout.journal import FILE as JOURNAL
from agentrl.rollout.journal import encode, read_journal
from agentrl.rollout.lines import Lines, read_lines
from agentrl.rollout.metrics import FILE as METRICS
from agentrl.rollout.metrics import iteration_metrics
from agentrl.rollout.pool import RunOne, run_groups
from agentrl.rollout.sampler import tasks_of
from agentrl.settings import Settings
from agentrl.trainer import TrainSpec
from agentrl.types import Group, Rollout, Task


class Watcher(Protocol):
    """Who is told what goes on: the console, or nobody."""

    def phase(self, iteration: int, phase: str, detail: str) -> None:
        """A phase of an iteration begins or moves on."""
        ...

    def rollouts(self, iteration: int, total: int) -> None:
        """An iteration asks for ``total`` rollouts."""
        ...

    def rollout(self, rollout: Rollout) -> None:
        """A rollout ended."""
        ...

    def iteration(self, metrics: Mapping[str, Any]) -> None:
        """An iteration ended."""
        ...


Announce = Callable[..., None]
"""``announce(event, **arguments)``: tells plugins, never raises."""


@dataclass(slots=True)
class Run:
    """Implements :class:`agentrl.trainer.TrainingRun` over a pool of rollouts and a folder."""

    spec: TrainSpec
    engine: Engine
    settings: Settings
    tasks: Sequence[Task]
    run_one: RunOne
    directory: Path
    watcher: Watcher
    announce: Announce
    journal: Lines
    metrics: Lines
    ahead: Ahead | None
    _reported: set[int]
    _recorded: dict[int, dict[str, Rollout]]
    _groups: Sequence[Group] = ()
    _seconds: float = 0.0
    _iteration: int = 0

    async def groups(self, iteration: int) -> Sequence[Group]:
        """Roll out this iteration's tasks, or take them from the journal."""
        started, settings = time.monotonic(), self.settings
        self._iteration = iteration
        tasks = tasks_of(self.tasks, iteration=iteration, count=settings.groups, seed=settings.seed)
        self.watcher.rollouts(iteration, len(tasks) * settings.group_size)
        self._groups = await run_groups(
            tasks,
            iteration=iteration,
            group_size=settings.group_size,
            concurrency=settings.concurrency,
            run_one=self.run_one,
            done=self._recorded.pop(iteration, {}),
            finished=self._finished,
            waiting=self._wanted,
        )
        self._seconds = time.monotonic() - started
        self._refuse_too_many_aborted()
        return self._groups

    async def report(self, iteration: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """Write the iteration's numbers, once."""
        if iteration in self._reported:
            return
        row = iteration_metrics(iteration, self._groups, metrics, {"rollout": self._seconds, **seconds})
        row |= self.ahead.counted() if self.ahead else {}
        self.metrics.append(row)
        self._reported.add(iteration)
        self.watcher.iteration(row)
        self.announce("agentrl_iteration_finished", iteration=iteration, metrics=row)

    def progress(self, phase: str, detail: str = "") -> None:
        """Pass on what the trainer is doing."""
        self.watcher.phase(self._iteration, phase, detail)

    def close(self) -> None:
        """Close the files."""
        self.journal.close()
        self.metrics.close()

    def _wanted(self, waiting: Iterable[Task]) -> None:
        """After what waits in this iteration comes the next one."""
        if self.ahead is not None:
            last = self._iteration + 1 == self.spec.iterations
            self.ahead.want(waiting if last else chain(waiting, self._rollouts_of(self._iteration + 1)))

    def _rollouts_of(self, iteration: int) -> Iterator[Task]:
        settings = self.settings
        for task in tasks_of(self.tasks, iteration=iteration, count=settings.groups, seed=settings.seed):
            yield from repeat(task, settings.group_size)

    def _finished(self, rollout: Rollout) -> None:
        self.journal.append(encode(rollout))
        self.watcher.rollout(rollout)
        self.announce("agentrl_rollout_finished", rollout=rollout)

    def _refuse_too_many_aborted(self) -> None:
        rollouts = [rollout for group in self._groups for rollout in group.rollouts]
        aborted = [rollout for rollout in rollouts if rollout.reward is None]
        if len(aborted) > self.settings.max_aborted_share * len(rollouts):
            causes = Counter(f"{r.exit_status}: {r.message}" for r in aborted).most_common(5)
            raise TrainerError(
                f"{len(aborted)} of {len(rollouts)} rollouts were aborted, more than AGENTRL_MAX_ABORTED_SHARE allows:\n"
                + "\n".join(f"  {count} x {cause}" for cause, count in causes)
            )


def open_run(
    directory: Path,
    *,
    spec: TrainSpec,
    engine: Engine,
    settings: Settings,
    tasks: Sequence[Task],
    run_one: RunOne,
    watcher: Watcher,
    announce: Announce,
    ahead: Ahead | None = None,
) -> Run:
    """Open the folder of a new or interrupted run."""
    journal, metrics = Lines(directory / JOURNAL), Lines(directory / METRICS)
    reported = {row["iteration"] for row in read_lines(metrics.path)}
    recorded: dict[int, dict[str, Rollout]] = {}
    for rollout in read_journal(journal.path):
        settled = rollout.reward is not None or rollout.iteration in reported
        if settled and rollout.iteration >= spec.first_iteration:
            recorded.setdefault(rollout.iteration, {})[rollout.id] = rollout
    return Run(
        spec,
        engine,
        settings,
        tasks,
        run_one,
        directory,
        watcher,
        announce,
        journal,
        metrics,
        ahead,
        reported,
        recorded,
    )
