"""Turning a request into a running command with its pipes, and keeping the tail of what it says."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .processes import MARKER, end, members, stat_of

MAX_ARG_BYTES = 128 << 10  # the kernel's limit for one argument (MAX_ARG_STRLEN)


class Tail:
    """The last ``cap`` bytes of what was added."""

    def __init__(self, cap: int) -> None:
        self.cap, self.size, self.cut = cap, 0, False
        self.chunks: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Append; memory stays below twice the cap and one chunk."""
        self.chunks.append(data)
        self.size += len(data)
        if self.size > 2 * self.cap:
            self.take()

    def take(self) -> bytes:
        """What is kept, and nothing older any more."""
        data = b"".join(self.chunks)
        if len(data) > self.cap:
            data, self.cut = data[len(data) - self.cap :], True
        self.chunks, self.size = [data], len(data)
        return data


class Command:
    """One command in flight. ``killed``: why it was ended, empty while it runs by itself."""

    def __init__(self, number: int, pid: int, marker: str, timeout_sec: float, cap: int) -> None:
        self.number, self.pid, self.marker = number, pid, marker
        self.deadline = time.monotonic() + timeout_sec
        self.since = (stat_of(pid) or (0, 0))[1]
        self.killed = ""
        self.pipes: tuple[tuple[int, Tail], ...] = ()
        self.cap = cap

    def sweep(self, others: set[int]) -> bool:
        """Kill what belongs to it, ``others`` being the pids of commands in flight; whether there was anything."""
        return end(lambda: members(self.pid, self.marker, self.since, others - {self.pid}))


def spawn(
    request: Mapping[str, Any], cwd: str, env: Mapping[str, str], limits: Mapping[str, int]
) -> tuple[int, int, int, int | None]:
    """Start the request's command: its pid, the pipes of stdout and stderr, and of stdin if wanted. Raises: OSError."""
    keep: list[int] = []
    argv = _argv(request, keep)
    stdin, feed = os.pipe() if request["has_stdin"] else (os.open(os.devnull, os.O_RDONLY), None)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    try:
        pid = os.fork()
    except OSError:
        for fd in (out, err, *([] if feed is None else [feed])):
            os.close(fd)
        raise
    else:
        if pid == 0:
            extra = {**env, **request["env"], MARKER: request["marker"]}
            _become(argv, extra, cwd, (stdin, out_end, err_end), keep, limits)
    finally:
        for fd in (stdin, out_end, err_end, *keep):
            os.close(fd)
    return pid, out, err, feed


def _argv(request: Mapping[str, Any], keep: list[int]) -> list[str]:
    """A script goes to ``bash -c``, or by an unnamed file if it is too long for an argument."""
    if "argv" in request:
        return list(request["argv"])
    script = os.fsencode(str(request["script"]))
    if len(script) < MAX_ARG_BYTES:
        return ["bash", "-c", os.fsdecode(script)]
    keep.append(os.memfd_create("script", 0))
    os.write(keep[0], script)
    os.lseek(keep[0], 0, os.SEEK_SET)
    return ["bash", f"/proc/self/fd/{keep[0]}"]


def _become(
    argv: list[str],
    env: Mapping[str, str],
    cwd: str,
    standard: Sequence[int],
    keep: Sequence[int],
    limits: Mapping[str, int],
) -> None:
    """In the forked child: turn into the command. Never returns; 126 and 127 mean what they mean to a shell."""
    code = 126
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for target, fd in enumerate(standard):
            os.dup2(fd, target)
        for fd in keep:
            os.set_inheritable(fd, True)
        for name, value in limits.items():
            _limit(getattr(resource, name), value)
        os.umask(0o022)
        os.chdir(cwd)
        code = 127
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) != errno.ENOENT:
            code = 126
        os.write(2, f"{argv[0]}: {error}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(code)


def _limit(kind: int, value: int) -> None:
    """Lower a limit of this process for good; a lower one that is already there stays."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
