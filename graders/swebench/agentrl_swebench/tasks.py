"""The reading half of the protocol: rows to tasks, sandboxes to start states, work to submissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrl.api import Prepared, Sandbox, Submission, Task, collect_patch, forget_future, reach_start
from agentrl_swebench.rows import read_row
from agentrl_swebench.settings import SweBenchSettings


class SweBenchFormat:
    """Implements :class:`agentrl.api.TaskFormat`."""

    def __init__(self, settings: SweBenchSettings) -> None:
        self._settings = settings

    def read(self, row: Mapping[str, Any]) -> Task:
        """See :mod:`agentrl_swebench.rows`."""
        return read_row(row, image=self._settings.image)

    async def prepare(self, sandbox: Sandbox, task: Task) -> Prepared:
        """The start state, committed, in a repository that knows nothing later."""
        base = await start(sandbox, task, timeout_sec=self._settings.pre_commands_timeout_sec)
        await forget_future(sandbox, task)
        return Prepared(base)

    async def collect(self, sandbox: Sandbox, task: Task, prepared: Prepared) -> Submission:
        """Whatever differs from the start state, once nothing runs any more."""
        return await collect_patch(sandbox, task, prepared, max_bytes=self._settings.patch_max_bytes)


async def start(sandbox: Sandbox, task: Task, *, timeout_sec: float) -> str:
    """The commit of the start state. Raises: GraderError, SandboxError (see :func:`agentrl.api.reach_start`)."""
    return await reach_start(sandbox, task, {"pre_commands": task.metadata["pre_commands"]}, timeout_sec=timeout_sec)
