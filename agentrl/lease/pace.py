"""How fast all processes on this host together may ask for something, and a brake that stops them all for a while.

The file holds when the next one may go. Not here: when to brake (:mod:`agentrl.lease.retries`).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
import time
from pathlib import Path

from agentrl.lease.slots import lock_byte

BRAKE_CAP_SEC = 300.0


class Pace:
    """At most ``per_sec`` a second over all processes that name ``path`` (0: no limit), and nobody while the brake is on."""

    def __init__(self, path: Path, per_sec: float) -> None:
        self._interval = 1.0 / per_sec if per_sec else 0.0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the next one may go; in order within this process."""
        async with self._turn:
            while left := self._go():
                await _sleep(left)

    async def calm(self) -> None:
        """Return when the brake is off. Uses up nothing."""
        while (left := self._next() - self._interval - time.time()) > 0:
            await _sleep(left)

    def free(self) -> bool:
        """Whether one could go at once. Uses up nothing."""
        return not self._turn.locked() and self._next() <= time.time()

    def brake(self, seconds: float) -> None:
        """Nobody of the account goes for so long (at most :data:`BRAKE_CAP_SEC`); never shortens a longer one."""
        until = time.time() + min(seconds, BRAKE_CAP_SEC)
        if self._next() < until:
            self._write(until)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _go(self) -> float:
        """0 when it is our turn, which is then used up; else seconds until it may be."""
        if not lock_byte(self._file, fcntl.F_WRLCK, 0):
            return 0.005
        try:
            now, then = time.time(), self._next()
            if then > now:
                return then - now
            if self._interval:
                self._write(now + self._interval)
            return 0.0
        finally:
            lock_byte(self._file, fcntl.F_UNLCK, 0)

    def _next(self) -> float:
        """When the next one may go. What lies too far ahead was written under another clock."""
        data = os.pread(self._file, 8, 0)
        then = float(struct.unpack("d", data)[0]) if len(data) == 8 else 0.0
        return then if then <= time.time() + max(BRAKE_CAP_SEC, self._interval) else 0.0

    def _write(self, then: float) -> None:
        os.pwrite(self._file, struct.pack("d", then), 0)


async def _sleep(seconds: float) -> None:
    """A little longer rather than all to the same moment."""
    await asyncio.sleep(seconds + random.uniform(0.0, min(1.0, 0.1 * seconds)))
