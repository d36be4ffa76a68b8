"""Task formats: how rows of a file become tasks, and how work on one becomes a submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agentrl.sandbox import Sandbox
from agentrl.types import Prepared, Submission, Task


class TaskFormat(Protocol):
    """A protocol's reading half; the grader of the same name judges."""

    def read(self, row: Mapping[str, Any]) -> Task:
        """One row as a task. Raises: RowError (names the field and what was expected)."""
        ...

    async def prepare(self, sandbox: Sandbox, task: Task) -> Prepared:
        """Bring a fresh sandbox into the task's start state, without any future; returns what the host must remember.

        Runs before the agent starts. Raises: SandboxError, GraderError (the task itself is broken).
        """
        ...

    async def collect(self, sandbox: Sandbox, task: Task, prepared: Prepared) -> Submission:
        """The agent's work. Kills what the agent left running first.

        Raises: PatchError (the agent's doing, see :mod:`agentrl.outcomes`), PatchTooLarge, SandboxError.
        """
        ...
