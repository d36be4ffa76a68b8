"""The start state of a task: made from the image by the task's own commands, the same in every sandbox."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from agentrl.api import ExecResult, GraderError, PatchError, Sandbox, Task, freeze_start, run_detached

_CHECKOUT = re.compile(r"git\s+(?:-\S+\s+)*checkout\s+\S+\s+--\s+(?P<paths>.+)")


async def reach_start(sandbox: Sandbox, task: Task, *, timeout_sec: float) -> str:
    """Run the commands that come before the agent, and commit the outcome; the commit is the base of every patch.

    Raises: GraderError (the task is broken: says which command, and what it printed), SandboxError.
    """
    made = await sandbox.exec(["mkdir", "-p", task.workdir], cwd="/", timeout_sec=60, idempotent=True)
    if not made.ok:
        raise GraderError(f"task {task.id}: {task.workdir} cannot be a folder: {tail(made.stderr)}")
    setup, _ = split_before(task.metadata.get("swepro") or {})
    await run_commands(sandbox, task, "before_repo_set_cmd", setup, timeout_sec=timeout_sec)
    await run_commands(sandbox, task, "pre_commands", task.metadata["pre_commands"], timeout_sec=timeout_sec)
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
        raise GraderError(f"task {task.id}: {field} took longer than {timeout_sec:g} s: {tail(result.stderr)}")
    if not result.ok:
        said, _, command = result.stderr.decode(errors="replace").partition(f"\n{mark} ")
        where = f" at `{command.strip()}`" if command else ""
        output = tail(result.stdout) + "\n" + said[-2000:]
        raise GraderError(f"task {task.id}: {field} failed{where} with exit code {result.exit_code}: {output.strip()}")


def split_before(swepro: Mapping[str, Any]) -> tuple[str, str]:
    """``before_repo_set_cmd`` as (what makes the start state, what brings the hidden tests).

    By SWE-bench Pro's convention the last line checks out the tests from the future commit: it waits until the
    agent's patch is applied. Any other last line belongs to the start state.
    """
    lines = [line for line in str(swepro.get("before_repo_set_cmd") or "").splitlines() if line.strip()]
    if lines and _CHECKOUT.search(lines[-1]):
        return "\n".join(lines[:-1]), lines[-1]
    return "\n".join(lines), ""


def checked_out(line: str) -> tuple[str, ...]:
    """The paths that a checkout line brings."""
    found = _CHECKOUT.search(line)
    return tuple(path.strip("'\"") for path in found["paths"].split()) if found else ()


def tail(output: bytes, length: int = 2000) -> str:
    """The end of an output, for people."""
    return output[-length:].decode(errors="replace").strip()


def both(result: ExecResult) -> str:
    """The ends of both streams, for the grade's details."""
    return "\n".join(part for part in (tail(result.stdout, 4000), tail(result.stderr, 4000)) if part)
