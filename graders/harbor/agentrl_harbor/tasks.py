"""The reading half of the protocol: directories to tasks, sandboxes to start states, work to submissions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.api import Prepared, RowError, Sandbox, Submission, Task
from agentrl_harbor import carry
from agentrl_harbor.folder import read_folder
from agentrl_harbor.settings import HarborSettings


class HarborFormat:
    """Implements :class:`agentrl.api.TaskFormat`. A row is ``{"path": directory}``; data may be a folder of directories."""

    def __init__(self, settings: HarborSettings) -> None:
        self._settings = settings

    def read(self, row: Mapping[str, Any]) -> Task:
        """See :mod:`agentrl_harbor.folder`."""
        path = row.get("path")
        if not isinstance(path, str) or not path:
            raise RowError(f"path: expected a task directory, got {path!r}")
        folder = Path(self._settings.tasks_dir, path).absolute()
        if not (folder / "task.toml").is_file():
            raise RowError(f"path: {folder} is no task directory: it has no task.toml")
        return read_folder(folder, build=self._settings.build)

    async def prepare(self, sandbox: Sandbox, task: Task) -> Prepared:
        """The image is the start state; the repository in it stays as its author made it unless it is to be pruned."""
        return await carry.start(sandbox, task, prune=self._settings.prune)

    async def collect(self, sandbox: Sandbox, task: Task, prepared: Prepared) -> Submission:
        """See :mod:`agentrl_harbor.carry`."""
        return await carry.collect(sandbox, task, prepared.base_commit, self._settings)
