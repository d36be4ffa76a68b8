"""A plugin for tests: the protocol ``coin``, whose verdict varies although the model is random.

A task's rollouts get heads and tails in turn, written into the agent's sandbox before it starts; the grader carries what it
finds there into a sandbox of its own and looks. An agent that removes its coin has lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from agentrl.api import (
    ExitStatus,
    FileError,
    Grade,
    GraderError,
    OpenSandbox,
    Prepared,
    Register,
    RowError,
    Sandbox,
    Submission,
    Task,
    hookimpl,
    kill_agent_processes,
)

WORKDIR = "/coin"
COIN = f"{WORKDIR}/side"


class CoinFormat:
    """Rows: ``{"id", "problem", "level"}``."""

    def __init__(self) -> None:
        self._tossed: Counter[str] = Counter()

    def read(self, row: Mapping[str, Any]) -> Task:
        if "id" not in row:
            raise RowError("field id is absent")
        return Task(row["id"], "coin", row["problem"], WORKDIR, level=row.get("level", ""))

    async def prepare(self, sandbox: Sandbox, task: Task) -> Prepared:
        self._tossed[task.id] += 1
        await sandbox.write_file(COIN, b"heads\n" if self._tossed[task.id] % 2 else b"tails\n")
        return Prepared()

    async def collect(self, sandbox: Sandbox, task: Task, prepared: Prepared) -> Submission:
        await kill_agent_processes(sandbox)
        try:
            return Submission("", b"", {"side": await sandbox.read_file(COIN)})
        except FileError:
            return Submission("", b"")


class CoinGrader:
    """Heads wins."""

    def check(self, task: Task) -> str | None:
        return None

    def gold(self, task: Task) -> Submission | None:
        return Submission("", b"", {"side": b"heads\n"})

    async def grade(
        self, task: Task, submission: Submission, open_sandbox: OpenSandbox, *, timeout_sec: float
    ) -> Grade:
        if "side" not in submission.artefacts:
            return Grade(0.0, ExitStatus.EMPTY_PATCH)
        async with open_sandbox() as sandbox:
            await sandbox.write_file(COIN, submission.artefacts["side"])
            result = await sandbox.exec(["grep", "-qx", "heads", COIN], timeout_sec=timeout_sec)
        if result.exit_code > 1:
            raise GraderError(f"grep answered {result.exit_code}: {result.stderr!r}")
        return Grade(1.0, ExitStatus.SOLVED) if result.ok else Grade(0.0, ExitStatus.UNSOLVED)


@hookimpl
def agentrl_register_task_formats(register: Register) -> None:
    register("coin", f"{__name__}:CoinFormat", summary="Tasks that nobody can work on")


@hookimpl
def agentrl_register_graders(register: Register) -> None:
    register("coin", f"{__name__}:CoinGrader", summary="Heads wins")
