"""A stream of bytes that outlives what carries it: what the other end has not confirmed is kept and sent again, what comes
twice is dropped.

Not here: what carries its messages, and what the bytes mean (:mod:`agentrl.relay.inside.streams`).
"""

# ruff: noqa: UP037

import asyncio
import struct

HEAD = struct.Struct("!QQ")  # bytes received so far, and the place of the first byte that follows
ROOM = 2 << 20
"""Unconfirmed bytes above which nobody should add more."""
MESSAGE = 512 << 10
"""Bytes of a message that makes a journey of its own. Nobody sends a longer one: to read it would take too long."""
PART = 32 << 10
"""Bytes of a message on a connection: whole ones count, however soon it is cut."""
CONFIRM_EVERY = 128 << 10
LARGEST = HEAD.size + MESSAGE


class Violation(Exception):
    """The other end does not keep to the protocol."""


class Pipe:
    """One end. Places are counted in bytes from the very first one: a message may come twice, late, or never."""

    def __init__(self) -> None:
        self.received = 0
        self.confirmed = 0
        self._told = 0
        self._kept = bytearray()
        self._waiting: "list[asyncio.Future[None]]" = []

    @property
    def end(self) -> int:
        """The place behind the last byte that was written."""
        return self.confirmed + len(self._kept)

    @property
    def full(self) -> bool:
        """Whether too much waits for the other end's word."""
        return len(self._kept) >= ROOM

    def write(self, data: bytes) -> None:
        """Add ``data``."""
        self._kept += data
        self.tell()

    def message(self, place: int, limit: int = MESSAGE) -> "tuple[bytes, int]":
        """The next message for somebody who has everything before ``place``, and the place behind it."""
        self._told = self.received
        skip = max(0, place - self.confirmed)
        data = bytes(self._kept[skip : skip + limit])
        start = self.confirmed + skip
        return HEAD.pack(self.received, start) + data, start + len(data)

    def word(self) -> bytes:
        """A message that says how far this end is, and nothing else."""
        return self.message(0, 0)[0]

    def due(self, place: int) -> bool:
        """Whether a message is worth sending to somebody who has everything before ``place``."""
        return place < self.end or self.received - self._told >= CONFIRM_EVERY

    def accept(self, message: bytes) -> bytes:
        """What is new in ``message``. Raises: Violation."""
        if not HEAD.size <= len(message) <= LARGEST:
            raise Violation("a message of a size that is not sent")
        confirmed, place = HEAD.unpack_from(message)
        if confirmed > self.end or place > self.received:
            raise Violation("a message out of place")
        if confirmed > self.confirmed:
            del self._kept[: confirmed - self.confirmed]
            self.confirmed = confirmed
        fresh = message[HEAD.size + self.received - place :]
        self.received += len(fresh)
        self.tell()
        return fresh

    def change(self) -> "asyncio.Future[None]":
        """Done when something has been written, confirmed or received from now on."""
        waiting: "asyncio.Future[None]" = asyncio.get_event_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()


def confirmed_by(message: bytes) -> int:
    """How far the sender of ``message`` has received. Raises: Violation."""
    if len(message) < HEAD.size:
        raise Violation("a message without a head")
    place: int = HEAD.unpack_from(message)[0]
    return place
