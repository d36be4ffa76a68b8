"""Long commands in a sandbox that no connection has to survive.

The command runs detached, its output in files, its exit code in a marker that appears by rename in a folder with a
random name. The marker must carry a nonce that the command never sees. A command starts at most once, however often
its launch was repeated, and polls may fail as often as they like: only its own time limit ends it.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agentrl.errors import SandboxError, SandboxGone, SandboxRefused
from agentrl.sandbox import Sandbox
from agentrl.tools.processes import kill_tagged
from agentrl.tools.rawgit import fresh_path, script
from agentrl.types import ExecResult

OUTPUT_CAP = 10 << 20
TAG = "AGENTRL_DETACHED"
_ANSWER_SEC = 30.0


@dataclass(frozen=True, slots=True)
class _Job:
    """One detached command: its folder inside, and the two secrets that mark its processes and its end."""

    sandbox: Sandbox
    folder: str
    tag: str
    nonce: str

    async def call(self, verb: str, *args: str, within_sec: float = _ANSWER_SEC) -> ExecResult:
        argv = ["sh", "-c", script("detached.sh"), "sh", verb, self.folder, *args]
        return await self.sandbox.exec(argv, cwd="/", timeout_sec=within_sec, idempotent=True)


async def run_detached(
    sandbox: Sandbox,
    command: str | Sequence[str],
    *,
    timeout_sec: float,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    poll_sec: float = 20.0,
) -> ExecResult:
    """Run ``command`` like :meth:`Sandbox.exec`, for as long as ``timeout_sec``; its end is noticed within 0.3 s.

    ``poll_sec``: how long one look may hold a connection open. At the timeout, and when the caller is cancelled, the
    command and everything it started is killed. Output: the last 10 MiB of each stream.

    Raises: SandboxGone, SandboxRefused, SandboxError (the exit code is unknown: the command's shell was killed, its
    folder or marker tampered with, or nobody could be reached until after the timeout).
    """
    job = _Job(sandbox, fresh_path(), secrets.token_hex(12), secrets.token_hex(16))
    deadline = time.monotonic() + timeout_sec
    try:
        await _start(job, command, cwd, env, deadline)
        exit_code = await _end(job, deadline, poll_sec)
    except (SandboxError, asyncio.CancelledError):
        with suppress(SandboxError):
            await kill_tagged(sandbox, job.tag)
            await _remove(job)
        raise
    if exit_code is None:
        await kill_tagged(sandbox, job.tag)
    (stdout, cut), (stderr, cut_too) = await _output(job, "stdout"), await _output(job, "stderr")
    await _remove(job)
    code = 137 if exit_code is None else exit_code
    return ExecResult(code, stdout, stderr, timed_out=exit_code is None, truncated=cut or cut_too)


async def _start(
    job: _Job, command: str | Sequence[str], cwd: str | None, env: Mapping[str, str] | None, deadline: float
) -> None:
    text = command if isinstance(command, str) else shlex.join(command)
    await job.sandbox.write_file(f"{job.folder}/command", text.encode(errors="surrogateescape"))
    argv = ["sh", "-c", script("detached.sh"), "sh", "start", job.folder]
    marked = {**(env or {}), TAG: job.tag}
    nonce = job.nonce.encode() + b"\n"

    async def launch() -> ExecResult:
        return await job.sandbox.exec(argv, cwd=cwd, env=marked, stdin=nonce, timeout_sec=_ANSWER_SEC, idempotent=True)

    result = await _persist(launch, deadline)
    if not result.ok:
        said = result.stderr[-1000:].decode(errors="replace").strip()
        raise SandboxError(f"a detached command did not start in {cwd or 'the default folder'}: {said}")


async def _end(job: _Job, deadline: float, poll_sec: float) -> int | None:
    """The exit code, or None when the deadline came first."""
    while True:
        left = deadline - time.monotonic()
        tenths = max(0, int(min(poll_sec, left) * 10))
        look = partial(job.call, "wait", str(tenths), within_sec=tenths / 10 + _ANSWER_SEC)
        result = await _persist(look, deadline)
        said = result.stdout.decode(errors="replace")
        if said == "lost\n":
            raise SandboxError("a detached command was lost: its shell was killed or its folder removed")
        if said and said != "running\n":
            return _exit_code(job, said)
        if left <= 0:
            return None


async def _persist(ask: Callable[[], Awaitable[ExecResult]], deadline: float) -> ExecResult:
    """Ask until somebody answers; after ``deadline`` twice more at most."""
    delay, late = 0.1, 0
    while True:
        try:
            result = await ask()
            if not result.timed_out:
                return result
            error = SandboxError("the sandbox did not answer in time")
        except (SandboxGone, SandboxRefused):
            raise
        except SandboxError as failure:
            error = failure
        late += time.monotonic() > deadline
        if late > 2:
            raise error
        await asyncio.sleep(random.uniform(0, delay))
        delay = min(2 * delay, 5.0)


def _exit_code(job: _Job, marker: str) -> int:
    nonce, _, code = marker.partition(" ")
    if nonce != job.nonce or not code.endswith("\n") or not code[:-1].isdecimal():
        raise SandboxError("the end marker of a detached command is not ours: something in the sandbox wrote it")
    return int(code)


async def _output(job: _Job, name: str) -> tuple[bytes, bool]:
    result = await job.call("output", name, str(OUTPUT_CAP + 1))
    if not result.ok:
        raise SandboxError(f"the {name} of a detached command cannot be read")
    return result.stdout[-OUTPUT_CAP:], result.truncated or len(result.stdout) > OUTPUT_CAP


async def _remove(job: _Job) -> None:
    await job.sandbox.exec(["rm", "-rf", job.folder], cwd="/", timeout_sec=_ANSWER_SEC, idempotent=True)
