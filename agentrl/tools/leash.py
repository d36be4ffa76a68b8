"""Host processes on a leash: whatever becomes of us, nothing that we started outlives us.

:func:`start_leashed` runs a program under a small supervisor (this module as a script) that holds one end of a pipe.
When our end closes, by :meth:`Leashed.stop`, by exit or by SIGKILL, the supervisor ends the program and every
descendant of it, also those that daemonised: it is their subreaper (prctl(2), PR_SET_CHILD_SUBREAPER). If the
supervisor itself is killed, the kernel kills the program (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

GRACE_SEC = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class Leashed:
    """A running program. ``process`` is the supervisor: it exits with the program's own code once all is gone."""

    process: asyncio.subprocess.Process
    log_path: Path

    async def wait(self) -> int:
        """The program's exit code (128+n for signal n)."""
        return await self.process.wait()

    async def stop(self) -> None:
        """End the program (SIGTERM, then SIGKILL after five seconds) with all descendants; idempotent."""
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.close()
        await asyncio.shield(self.process.wait())

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of its output, for error messages."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


async def start_leashed(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log_path: Path,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Leashed:
    """Start ``argv`` with exactly ``env``; stdout and stderr are appended to ``log_path``. Raises: FileNotFoundError."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # -S -E: a supervisor needs the standard library only, and starts in a few milliseconds without site-packages.
            *("-S", "-E", __file__, ",".join(map(str, pass_fds)) or "-", *argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=dict(env),
            cwd=cwd,
            pass_fds=pass_fds,
            # Out of our process group: a Ctrl-C at the terminal is ours to translate into an orderly stop.
            start_new_session=True,
        )
    return Leashed(process, log_path)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def _descendants() -> list[int]:
    """All processes below this one, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _signal_all(number: int) -> bool:
    pids = _descendants()
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(pids)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_all() -> None:
    """SIGTERM, a grace period, SIGKILL until nothing is left."""
    _signal_all(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SEC
    while _descendants():
        _reap()
        if time.monotonic() > deadline:
            _signal_all(signal.SIGKILL)
        time.sleep(0.02)


def _terminated(_number: int, _frame: object) -> None:
    _end_all()
    os._exit(143)


def _supervise(pass_fds: Sequence[int], argv: Sequence[str]) -> int:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, pass_fds=pass_fds, preexec_fn=partial(_die_with, os.getpid())
    )
    watched = os.pidfd_open(child.pid)
    ready, _, _ = select.select([0, watched], [], [])
    code = child.wait() if watched in ready else None
    _end_all()
    if code is None:
        code = 143
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    fds = [int(fd) for fd in sys.argv[1].split(",")] if sys.argv[1] != "-" else []
    sys.exit(_supervise(fds, sys.argv[2:]))
