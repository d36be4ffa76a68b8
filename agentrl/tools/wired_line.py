"""A wire that is asked until it answers: who retries, for how long, and what a closed machine says.

Everything that goes over a line may arrive twice. What must not happen twice is the scripts' business (``wired.sh``).
"""

from __future__ import annotations

import asyncio
import random
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol, TypeVar

from agentrl.errors import FileError, SandboxError, SandboxGone, SandboxRefused, SandboxThrottled, SandboxTransient

T = TypeVar("T")

ANSWER_END = b"\n.\n"
"""How every answer of a script ends."""

LATE_SEC = 15.0
FILES_SEC = 120.0
_ANSWER_SEC = 30.0
_DELAYS_SEC = (0.1, 5.0)


class Wire(Protocol):
    """What a provider offers for one machine, each call tried once.

    Raises: SandboxGone, SandboxTransient (it never arrived: safe to repeat), SandboxThrottled, SandboxRefused,
    SandboxError (unknown: it may have run).
    """

    async def run(
        self, script: str, *, env: Mapping[str, str], timeout_sec: float, user: str | None
    ) -> tuple[int, bytes]:
        """Run ``script`` (at most 60 kB, for any POSIX ``sh``) to its end: exit code and stdout. Where stdout ends with
        :data:`ANSWER_END`, nobody asks for the code, and a wire for which it is another request may say 0.

        stdout is printable ASCII of at most 256 kB: a wire may mangle anything else. ``env`` (together at most 90 kB, printable
        ASCII) travels on no command line. stdin is closed or empty. The script ends by itself well within ``timeout_sec``; a
        wire whose connection is cut, or whose time is over, raises SandboxError and need not kill anything.
        """
        ...

    async def put(self, path: str, data: bytes) -> None:
        """Write a new file under a fresh name in an existing folder, any size; as root, or as the default user where that is
        the only one."""
        ...

    async def get(self, path: str) -> bytes:
        """Read a regular file that our own script made; any size. As the same user as :meth:`put`."""
        ...


class Line:
    """The wire of one machine until it is closed. ``admin``: who reads and writes files, and kills."""

    def __init__(self, sandbox_id: str, wire: Wire, admin: str | None) -> None:
        self.sandbox_id, self.wire, self.admin = sandbox_id, wire, admin
        self._closed = asyncio.Event()

    def close(self) -> None:
        """From now on nothing answers, calls under way included."""
        self._closed.set()

    def check_open(self) -> None:
        """Raises: SandboxGone."""
        if self._closed.is_set():
            raise SandboxGone(f"{self.sandbox_id} was closed")

    async def say(
        self,
        script: Callable[[], str],
        *,
        until: float,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        within_sec: Callable[[], float] = lambda: 0.0,
    ) -> list[str]:
        """Run what ``script`` returns (asked anew for each try) until its answer comes whole: lines, the final dot left out.

        ``within_sec``: how long the script means to take. Raises: like :meth:`ask`.
        """

        async def run() -> list[str]:
            patience_sec = within_sec() + _ANSWER_SEC
            code, said = await self.wire.run(script(), env=env or {}, timeout_sec=patience_sec, user=user)
            lines = said.decode("ascii", errors="replace").split("\n")
            if lines[-2:] == [".", ""]:
                return lines[:-2]
            if code in (126, 127):
                raise SandboxRefused(
                    f"{self.sandbox_id} cannot run a shell script (exit code {code}): has it sh and coreutils?"
                )
            raise SandboxError(f"a script in {self.sandbox_id} was cut: exit code {code}, {len(said)} bytes of answer")

        return await self.ask(run, until=until)

    async def ask(self, call: Callable[[], Awaitable[T]], *, until: float) -> T:
        """Await ``call()`` until it answers, with full jitter; no try begins after ``until`` (:func:`time.monotonic`).

        Raises: SandboxGone, SandboxRefused and FileError at once; SandboxTransient if nothing ever arrived;
        SandboxError (something may have).
        """
        ceiling, unknown = _DELAYS_SEC[0], None
        while True:
            try:
                return await self.once(call)
            except (SandboxGone, SandboxRefused, FileError):
                raise
            except SandboxError as error:
                failure = error
            unknown = unknown or (None if isinstance(failure, SandboxTransient) else failure)
            asked_sec = failure.retry_after_sec if isinstance(failure, SandboxThrottled) else None
            delay = (asked_sec or 0.0) + random.uniform(0, ceiling)
            if time.monotonic() + delay > until:
                raise unknown or failure
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), delay)
            ceiling = min(2 * ceiling, _DELAYS_SEC[1])

    async def once(self, call: Callable[[], Awaitable[T]]) -> T:
        """``await call()``, but SandboxGone as soon as the machine is closed."""
        self.check_open()
        answer, closed = asyncio.ensure_future(call()), asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((answer, closed), return_when=asyncio.FIRST_COMPLETED)
            self.check_open()
            return answer.result()
        finally:
            answer.cancel()
            closed.cancel()
            await asyncio.gather(answer, closed, return_exceptions=True)


def plain(data: bytes) -> str:
    """``data`` in printable ASCII, as ``printf %b`` takes it."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\0{byte:03o}" for byte in data)


def assigned(name: str, value: str) -> str:
    """A line of shell that sets ``name`` to ``value``, of whatever bytes."""
    text = plain(value.encode(errors="surrogateescape"))
    if "\\" not in text:
        return f"{name}={shlex.quote(value)}\n"
    # A command substitution loses newlines at the end.
    return f"{name}=$(printf '%b.' {shlex.quote(text)}); {name}=${{{name}%.}}\n"
