"""Graders: a submission in, a verdict out, in a fresh sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from agentrl.sandbox import Sandbox
from agentrl.types import Grade, Submission, Task

OpenSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]
"""Opens one fresh sandbox of the task's image; it is closed when the block ends."""

PrepareSandbox = Callable[[Sandbox], Awaitable[object]]


class Grader(Protocol):
    """A judge. It never sees the agent's machine."""

    def check(self, task: Task) -> str | None:
        """A reason why this task can never be graded, or None. Asked before anything is paid for."""
        ...

    async def grade(
        self, task: Task, submission: Submission, open_sandbox: OpenSandbox, *, timeout_sec: float
    ) -> Grade:
        """Judge. ``timeout_sec`` bounds the tests themselves: running out of it is a verdict (``tests_timed_out``).

        Raises: GraderError or SandboxError when there is no verdict; never a made-up grade.
        """
        ...

    def gold(self, task: Task) -> Submission | None:
        """The task's own solution for ``agentrl validate``, or None when the format carries none."""
        ...
