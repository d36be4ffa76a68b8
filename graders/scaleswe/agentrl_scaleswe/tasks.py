"""The reading half of the protocol: rows to tasks, sandboxes to start states, work to submissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrl.api import Prepared, Sandbox, Submission, Task, collect_patch, forget_future
from agentrl_scaleswe.rows import read_row
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.start import start


class ScaleSweFormat:
    """Implements :class:`agentrl.api.TaskFormat`."""

    def __init__(self, settings: ScaleSweSettings) -> None:
        self._settings = settings

    def read(self, row: Mapping[str, Any]) -> Task:
        """See :mod:`agentrl_scaleswe.rows`."""
        return read_row(row)

    async def prepare(self, sandbox: Sandbox, task: Task) -> Prepared:
        """The start state, committed, in a repository that knows nothing later."""
        base = await start(sandbox, task, timeout_sec=self._settings.pre_commands_timeout_sec)
        await forget_future(sandbox, task)
        return Prepared(base)

    async def collect(self, sandbox: Sandbox, task: Task, prepared: Prepared) -> Submission:
        """Whatever differs from the start state, once nothing runs any more."""
        return await collect_patch(sandbox, task, prepared, max_bytes=self._settings.patch_max_bytes)
