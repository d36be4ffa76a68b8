"""Ending what runs in a sandbox: all that an agent left behind, or one tree of processes.

Needs a shell and ``/proc`` in the sandbox, nothing else. The machine's own processes are the first one, the exec server
(whatever is above our shell) and kernel threads; on a machine with further services of its own those die too.
"""

from __future__ import annotations

from agentrl.errors import SandboxError
from agentrl.sandbox import Sandbox
from agentrl.tools.rawgit import script

TIMEOUT_SEC = 60.0


async def kill_agent_processes(sandbox: Sandbox) -> int:
    """Kill every process in the sandbox but its init and exec server, until none is left; how many there were.

    Raises: SandboxError (some survive, or come back faster than they die; the message names them).
    """
    return await _kill(sandbox)


async def kill_tagged(sandbox: Sandbox, tag: str) -> int:
    """Kill the processes with ``tag`` (letters, digits, ``_-=``) in their environment and all below them; how many.

    Raises: SandboxError, like :func:`kill_agent_processes`.
    """
    return await _kill(sandbox, tag)


async def _kill(sandbox: Sandbox, *tag: str) -> int:
    argv = ["sh", "-c", script("killall.sh"), "sh", *tag]
    result = await sandbox.exec(argv, cwd="/", timeout_sec=TIMEOUT_SEC, idempotent=True)
    if not result.ok:
        survivors = result.stderr[-1000:].decode(errors="replace").strip()
        raise SandboxError(f"processes survive SIGKILL in {sandbox.id}: {survivors or 'no list'}")
    return int(result.stdout)
