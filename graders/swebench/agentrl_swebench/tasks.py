"""The reading half of the protocol: rows to tasks, sandboxes to start states, work to submissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrl.api import (
    GraderError,
    PatchError,
    Prepared,
    Sandbox,
    Submission,
    Task,
    capture_patch,
    freeze_start,
    kill_agent_processes,
    prune_future,
    run_detached,
)
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
        base = await reach_start(sandbox, task, timeout_sec=self._settings.pre_commands_timeout_sec)
        try:
            await prune_future(sandbox, task.workdir)
        except PatchError as error:
            raise GraderError(f"task {task.id}: its future cannot be removed: {error}") from error
        return Prepared(base)

    async def collect(self, sandbox: Sandbox, task: Task, prepared: Prepared) -> Submission:
        """Whatever differs from the start state, once nothing runs any more."""
        await kill_agent_processes(sandbox)
        limit = self._settings.patch_max_bytes
        captured = await capture_patch(sandbox, task.workdir, prepared.base_commit, max_bytes=limit)
        return Submission(prepared.base_commit, captured.patch, ignored=captured.ignored)


async def reach_start(sandbox: Sandbox, task: Task, *, timeout_sec: float) -> str:
    """Bring a fresh sandbox into the task's start state; the commit that holds it is the base of every patch.

    Raises: GraderError (the image is not this task's, or ``pre_commands`` fail), SandboxError.
    """
    if commands := task.metadata["pre_commands"]:
        await sandbox.exec(["mkdir", "-p", task.workdir], cwd="/", timeout_sec=60, idempotent=True)
        done = await run_detached(sandbox, f"set -e\n{commands}\n", cwd=task.workdir, timeout_sec=timeout_sec)
        if not done.ok:
            said = (done.stdout + done.stderr)[-2000:].decode(errors="replace").strip()
            raise GraderError(f"task {task.id}: pre_commands failed with exit code {done.exit_code}: {said}")
    try:
        return await freeze_start(sandbox, task.workdir)
    except PatchError as error:
        raise GraderError(f"task {task.id}: {task.workdir} holds no start state: {error}") from error
