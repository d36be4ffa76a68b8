"""Rows of the protocol, and what is taken from the agent's sandbox.

A row: ``{"id", "workdir", "problem", "setup", "expect": {"path", "lines"}, "solution"}``. ``setup`` is a bash script that
makes the start state in ``workdir``; ``path`` is relative to ``workdir``; ``solution`` (optional) is the text of a right file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from agentrl.api import FileError, GraderError, Prepared, RowError, Sandbox, Submission, Task, kill_agent_processes
from agentrl_example_grader.settings import LineCountSettings

SETUP_SEC = 120.0


class LineCountFormat:
    """Implements :class:`agentrl.api.TaskFormat`."""

    def __init__(self, settings: LineCountSettings) -> None:
        self._max_bytes = settings.max_bytes

    def read(self, row: Mapping[str, Any]) -> Task:
        """One row as a task. Raises: RowError."""
        expect = _field(row, "expect", dict)
        path = _field(expect, "path", str)
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise RowError(f"expect.path must lie inside workdir, not {path!r}")
        return Task(
            id=_field(row, "id", str),
            protocol="linecount",
            problem=_field(row, "problem", str),
            workdir=_field(row, "workdir", str),
            metadata={
                "setup": _field(row, "setup", str),
                "path": path,
                "lines": _field(expect, "lines", int),
                "solution": row.get("solution"),
            },
        )

    async def prepare(self, sandbox: Sandbox, task: Task) -> Prepared:
        """Make the start state."""
        await set_up(sandbox, task)
        return Prepared()

    async def collect(self, sandbox: Sandbox, task: Task, prepared: Prepared) -> Submission:
        """The file that was asked for, once nothing that the agent left running can change it any more.

        No file, a folder, a device, or more than ``SWE_LINECOUNT_MAX_BYTES``: nothing was submitted.
        """
        await kill_agent_processes(sandbox)
        path = task.metadata["path"]
        try:
            content = await sandbox.read_file(f"{task.workdir}/{path}", max_bytes=self._max_bytes)
        except FileError:
            return Submission(base_commit="", patch=b"")
        return Submission(base_commit="", patch=b"", artefacts={path: content})


async def set_up(sandbox: Sandbox, task: Task) -> None:
    """Run the task's own setup script. Raises: GraderError when it fails, for then the task is broken."""
    script = f'mkdir -p "$WORKDIR" && cd "$WORKDIR" && {{ {task.metadata["setup"] or ":"}\n}}'
    result = await sandbox.exec(script, env={"WORKDIR": task.workdir}, timeout_sec=SETUP_SEC)
    if not result.ok:
        raise GraderError(f"setup of task {task.id} failed: {result.stderr.decode(errors='replace')[-500:]}")


def _field(row: Mapping[str, Any], name: str, kind: type) -> Any:
    value = row.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RowError(f"field {name!r} must be of type {kind.__name__}, not {type(value).__name__}")
    return value
