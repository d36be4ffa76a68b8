"""From an image to a task's start state, and from an agent's sandbox to what is graded: for tasks that are repositories.

The start state is made by the task's own commands, the same in every sandbox, and committed; that commit is the base of
every patch. A failure here is the task's or the machine's, never the agent's.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from agentrl.errors import GraderError, PatchError
from agentrl.sandbox import Sandbox
from agentrl.tools.detached import run_detached
from agentrl.tools.git import freeze_start, prune_future
from agentrl.tools.patch import capture_patch
from agentrl.tools.processes import kill_agent_processes
from agentrl.types import Prepared, Submission, Task


async def reach_start(sandbox: Sandbox, task: Task, scripts: Mapping[str, str], *, timeout_sec: float) -> str:
    """Run ``scripts`` (shell lines by the name of the field they stand in) in the workdir, and commit the outcome: its id.

    Raises: GraderError (the task is broken: says which command, and what it printed), SandboxError.
    """
    made = await sandbox.exec(["mkdir", "-p", task.workdir], cwd="/", timeout_sec=60, idempotent=True)
    if not made.ok:
        raise GraderError(f"task {task.id}: {task.workdir} cannot be a folder: {_tail(made.stderr)}")
    for name, script in scripts.items():
        await run_commands(sandbox, task, name, script, timeout_sec=timeout_sec)
    found = await sandbox.exec(["ls", "-A", task.workdir], cwd="/", timeout_sec=60, idempotent=True)
    if not set(found.stdout.split()) - {b".git"}:
        raise GraderError(f"task {task.id}: {task.workdir} is empty: is it the right image and workdir?")
    try:
        return await freeze_start(sandbox, task.workdir)
    except PatchError as error:
        raise GraderError(f"task {task.id}: no start state: {error}") from error


async def run_commands(sandbox: Sandbox, task: Task, field: str, script: str, *, timeout_sec: float) -> None:
    """Run a script of the task in its workdir; the first command that fails ends it. Raises: GraderError, SandboxError."""
    if not script.strip():
        return
    mark = secrets.token_hex(8)
    head = f'set -e\ntrap \'printf "\\n{mark} %s\\n" "$BASH_COMMAND" >&2\' ERR\n'
    result = await run_detached(sandbox, head + script + "\n", cwd=task.workdir, timeout_sec=timeout_sec)
    if result.timed_out:
        raise GraderError(f"task {task.id}: {field} took longer than {timeout_sec:g} s: {_tail(result.stderr)}")
    if not result.ok:
        said, _, command = result.stderr.decode(errors="replace").partition(f"\n{mark} ")
        where = f" at `{command.strip()}`" if command else ""
        output = _tail(result.stdout) + "\n" + said[-2000:]
        raise GraderError(f"task {task.id}: {field} failed{where} with exit code {result.exit_code}: {output.strip()}")


async def forget_future(sandbox: Sandbox, task: Task) -> None:
    """:func:`agentrl.tools.git.prune_future` of the workdir, as a task's failure. Raises: GraderError, SandboxError."""
    try:
        await prune_future(sandbox, task.workdir)
    except PatchError as error:
        raise GraderError(f"task {task.id}: its future cannot be removed: {error}") from error


async def collect_patch(sandbox: Sandbox, task: Task, prepared: Prepared, *, max_bytes: int) -> Submission:
    """Whatever differs from the start state, once nothing runs any more. Raises: PatchTooLarge, PatchError, SandboxError."""
    await kill_agent_processes(sandbox)
    captured = await capture_patch(sandbox, task.workdir, prepared.base_commit, max_bytes=max_bytes)
    return Submission(prepared.base_commit, captured.patch, ignored=captured.ignored)


def _tail(output: bytes) -> str:
    return output[-2000:].decode(errors="replace").strip()
