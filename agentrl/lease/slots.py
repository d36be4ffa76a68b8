"""Places that all processes on this host share: so many at once, and no more.

A place is a locked byte of a file: the kernel frees it when its process dies, however it dies, so there is no daemon and
nothing to clean up. Who waits is queued within its process; between processes chance decides.
"""

from __future__ import annotations

import asyncio
import fcntl
import heapq
import itertools
import os
import random
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

POLL_SEC = 0.25
"""How often at most one process looks for what others have freed."""
_FLOCK = "hhqqi"  # struct flock: type, whence, start, length, pid (0 for locks of an open file)
_WAITING = 1 << 40  # this byte is share-locked by every process that waits


class Slots:
    """At most ``count`` holders at once over all processes that name ``path``; 0: no limit. For one event loop."""

    def __init__(self, path: Path, count: int) -> None:
        self.count = count
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._held: set[int] = set()
        self._queue: list[_Ticket] = []
        self._numbers = itertools.count()

    async def acquire(self, *, urgent: bool = False) -> Slot:
        """Wait for a place. First come, first served, the urgent before all others."""
        if (slot := self.try_acquire()) is not None:
            return slot
        ticket = _Ticket(not urgent, next(self._numbers))
        heapq.heappush(self._queue, ticket)
        lock_byte(self._file, fcntl.F_RDLCK, _WAITING)
        try:
            poll_sec = POLL_SEC / 16
            while self._queue[0] is not ticket or (index := self._take()) is None:
                await self._changed(ticket, poll_sec)
                poll_sec = min(POLL_SEC, 2 * poll_sec)
        finally:
            self._leave(ticket)
        return Slot(self, index)

    def try_acquire(self) -> Slot | None:
        """A place if one is free and nobody of this process waits for it."""
        index = None if self._queue else self._take()
        return None if index is None else Slot(self, index)

    def waited_for(self) -> bool:
        """Whether anybody, of any process, waits for a place."""
        return bool(self._queue) or self._others_wait()

    def release(self, index: int) -> None:
        """Called by :meth:`Slot.release`."""
        if self.count and self._file >= 0:
            self._held.discard(index)
            lock_byte(self._file, fcntl.F_UNLCK, index)
            # Where others wait too, we look for it as seldom as they do, or they would never find it free.
            if not self._others_wait():
                self._wake()

    def close(self) -> None:
        """Free everything that this process holds. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _take(self) -> int | None:
        if not self.count:
            return 0
        if len(self._held) >= self.count:
            return None
        first = random.randrange(self.count)
        for index in ((first + step) % self.count for step in range(self.count)):
            if index not in self._held and lock_byte(self._file, fcntl.F_WRLCK, index):
                self._held.add(index)
                return index
        return None

    async def _changed(self, ticket: _Ticket, poll_sec: float) -> None:
        """Until we are first in the queue, a place of ours was freed, or, when first, it is time to look again."""
        ticket.event.clear()
        first = self._queue[0] is ticket
        with suppress(TimeoutError):
            async with asyncio.timeout(poll_sec * random.uniform(0.5, 1.0) if first else None):
                await ticket.event.wait()

    def _leave(self, ticket: _Ticket) -> None:
        self._queue.remove(ticket)
        heapq.heapify(self._queue)
        if not self._queue:
            lock_byte(self._file, fcntl.F_UNLCK, _WAITING)
        self._wake()

    def _wake(self) -> None:
        if self._queue:
            self._queue[0].event.set()

    def _others_wait(self) -> bool:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _WAITING, 1, 0)
        found, *_ = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))
        return bool(found != fcntl.F_UNLCK)


@dataclass(order=True, slots=True)
class _Ticket:
    late: bool
    number: int
    event: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


class Slot:
    """One place. Releasing twice is the same as once; :meth:`moved` hands it on, so that the old owner's release is none."""

    def __init__(self, slots: Slots, index: int) -> None:
        self._slots: Slots | None = slots
        self._index = index

    def release(self) -> None:
        """Give it back."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release(self._index)

    def moved(self) -> Slot:
        """The same place with a new owner."""
        assert self._slots is not None, "this place was given away already"
        slots, self._slots = self._slots, None
        return Slot(slots, self._index)


def lock_byte(file: int, kind: int, byte: int) -> bool:
    """Lock or unlock one byte for this open file, without waiting; whether that was possible."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))
    except BlockingIOError:
        return False
    return True
