"""Is a task fit for training? Its gold patch must always pass, doing nothing must always fail, and what is not to be
broken must be whole before (where the grader knows such tests).

Every task is tried the way a rollout tries it, in fresh sandboxes, without an agent. A task that fails a check goes to the
quarantine list with all its reasons. Here nothing is retried: a machine that fails is a reason too, and a later run, which
repeats such tasks only, may clear it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from agentrl.errors import AgentrlError, SandboxError
from agentrl.grader import Grader
from agentrl.outcomes import ExitStatus
from agentrl.sandbox import Sandbox
from agentrl.tasks import TaskFormat
from agentrl.types import Grade, Submission, Task

OpenSandboxFor = Callable[[Task], AbstractAsyncContextManager[Sandbox]]
"""Opens one fresh sandbox for a task; it is closed when the block ends."""

# A change that mends nothing: unlike an empty patch it makes the tests run.
IDLE_PATCH = b"""\
diff --git a/.agentrl-idle b/.agentrl-idle
new file mode 100644
--- /dev/null
+++ b/.agentrl-idle
@@ -0,0 +1 @@
+This file changes nothing.
"""


@dataclass(frozen=True, slots=True)
class Validated:
    """One task's outcome. ``reasons``: why it is unfit, one sentence each; empty means fit. ``gold_rewards`` has one
    entry for each repetition that was graded. ``digest`` names the task's content and the thoroughness of the check;
    ``settled`` is False when a machine failed, so that there is no verdict on the task.
    """

    task_id: str
    digest: str
    reasons: tuple[str, ...]
    gold_rewards: tuple[float, ...]
    idle_reward: float | None
    duration_sec: float
    settled: bool = True

    @property
    def fit(self) -> bool:
        """Whether the task may be used."""
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        """A row for a report; :meth:`from_json` is the inverse."""
        return {"fit": self.fit, **asdict(self)}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Validated:
        """What :meth:`to_json` wrote."""
        values = {name: value for name, value in row.items() if name != "fit"}
        return cls(**{**values, "reasons": tuple(row["reasons"]), "gold_rewards": tuple(row["gold_rewards"])})


def quarantine(rows: Iterable[Validated]) -> dict[str, tuple[str, ...]]:
    """Task id → reasons, of the unfit ones."""
    return {row.task_id: row.reasons for row in rows if not row.fit}


def digest(task: Task, repeats: int) -> str:
    """Equal for equal tasks that are checked equally thoroughly."""
    content = json.dumps([asdict(task), repeats], sort_keys=True, default=str)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]


def still_valid(rows: Iterable[Validated], tasks: Iterable[Task], repeats: int) -> dict[str, Validated]:
    """Task id → its last row, of the tasks that need no new check: settled, and nothing about them has changed."""
    wanted = {task.id: digest(task, repeats) for task in tasks}
    return {row.task_id: row for row in rows if row.settled and wanted.get(row.task_id) == row.digest}


async def validate(
    tasks: Sequence[Task],
    task_format: TaskFormat,
    grader: Grader,
    open_sandbox: OpenSandboxFor,
    *,
    repeats: int = 3,
    concurrency: int = 4,
    timeout_sec: float = 600.0,
) -> AsyncIterator[Validated]:
    """Check every task, at most ``concurrency`` at a time, and yield each as it is done.

    ``repeats``: how often the gold patch must pass. ``timeout_sec``: for the tests of one grading.
    """
    room = asyncio.Semaphore(concurrency)

    async def one(task: Task) -> Validated:
        async with room:
            return await _Check(task, task_format, grader, open_sandbox, timeout_sec).run(repeats)

    running = [asyncio.create_task(one(task)) for task in tasks]
    try:
        for done in asyncio.as_completed(running):
            yield await done
    finally:
        for check in running:
            check.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class _Check:
    """One task on the bench: collects reasons until all checks were made."""

    def __init__(
        self, task: Task, task_format: TaskFormat, grader: Grader, open_sandbox: OpenSandboxFor, timeout_sec: float
    ) -> None:
        self.task, self.format, self.grader, self.timeout_sec = task, task_format, grader, timeout_sec
        self.open = partial(open_sandbox, task)
        self.reasons: list[str] = []
        self.settled = True

    async def run(self, repeats: int) -> Validated:
        started = time.monotonic()
        idle: float | None = None
        gold: list[float] = []
        if reason := self.grader.check(self.task):
            self.reasons.append(reason)
        else:
            idle = await self.idle_fails()
            gold = await self.gold_passes(repeats)
        reasons = tuple(reason.encode(errors="replace").decode() for reason in self.reasons)
        seconds = time.monotonic() - started
        return Validated(
            self.task.id, digest(self.task, repeats), reasons, tuple(gold), idle, seconds, settled=self.settled
        )

    async def idle_fails(self) -> float | None:
        """Prepare, do nothing, collect: the patch must be empty, and must not earn, even when the tests do run."""
        try:
            async with self.open() as sandbox:
                prepared = await self.format.prepare(sandbox, self.task)
                nothing = await self.format.collect(sandbox, self.task, prepared)
        except AgentrlError as error:
            self.blame("an untouched sandbox cannot be collected", error)
            return None
        if nothing.patch:
            self.reasons.append(f"an untouched sandbox gives a patch of {len(nothing.patch)} bytes")
        for name, submission in (("empty", nothing), ("idle", replace(nothing, patch=IDLE_PATCH))):
            grade = await self.grade(f"the {name} patch", submission)
            if grade and _passes(grade):
                self.reasons.append(f"the {name} patch passes: the tests do not need the solution")
        if grade and (broken := grade.details.get("broken")):
            self.reasons.append(f"{len(broken)} tests that must keep passing fail before: {', '.join(broken[:5])}")
        return grade.reward if grade else None

    async def gold_passes(self, repeats: int) -> list[float]:
        gold = self.grader.gold(self.task)
        if gold is None:
            self.reasons.append("the task carries no gold patch")
            return []
        grades = [await self.grade("the gold patch", gold) for _ in range(repeats)]
        failed = [grade for grade in grades if grade and not _passes(grade)]
        if failed:
            self.reasons.append(f"the gold patch fails {len(failed)} of {repeats} times: {_shown(failed[0].details)}")
        return [grade.reward for grade in grades if grade]

    async def grade(self, what: str, submission: Submission) -> Grade | None:
        try:
            return await self.grader.grade(self.task, submission, self.open, timeout_sec=self.timeout_sec)
        except AgentrlError as error:
            self.blame(f"{what} cannot be graded", error)
            return None

    def blame(self, what: str, error: AgentrlError) -> None:
        self.settled = self.settled and not isinstance(error, SandboxError)
        self.reasons.append(f"{what}: {type(error).__name__}: {error}")


def _passes(grade: Grade) -> bool:
    return grade.exit_status is ExitStatus.SOLVED or grade.reward >= 1.0


def _shown(details: Mapping[str, Any]) -> str:
    return str(dict(details))[-1000:]
