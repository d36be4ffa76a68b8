"""Many connections inside one pipe: the same code at both ends.

Each stream has a window of its own, so that a slow one stops nobody else. Not here: what carries the pipe's messages, and
what a connection says.
"""

# ruff: noqa: UP037

import asyncio
import struct
from collections import deque

from .pipe import Pipe, Violation

OPEN, DATA, END, RESET, CREDIT = range(1, 6)
FRAME = struct.Struct("!IBI")  # number of the stream, kind, and bytes that follow (DATA) or may be sent (CREDIT)
CHUNK = 32 << 10
WINDOW = 512 << 10
"""Bytes of one stream that may be under way."""
MAX_STREAMS = 128
FRAMES = 1000
"""Frames that are handled at once, so that nothing else waits for long."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


class Stream:
    """One connection. ``inbox``: what came; ``b""`` is its end, None a break. ``over``: the kind of frame that ended it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inbox: "deque[bytes | None]" = deque()
        self.may_send = self.may_come = WINDOW
        self.consumed = self.over = 0


class Streams:
    """The connections of one pipe. ``serve(stream)`` is started for each that the other end opens; None: it may open none."""

    def __init__(self, pipe: Pipe, serve: "Callable[[Stream], Coroutine[Any, Any, None]] | None" = None) -> None:
        self.pipe, self._serve = pipe, serve
        self._live: "dict[int, Stream]" = {}
        self._tasks: "dict[int, asyncio.Future[None]]" = {}
        self._rest = bytearray()
        self._last = 0

    def open(self) -> Stream:
        """A new stream of ours."""
        self._last += 1
        stream = self._live[self._last] = Stream(self._last)
        self._frame(stream, OPEN)
        return stream

    async def send(self, stream: Stream, data: bytes) -> None:
        """Send ``data`` as fast as the other end takes it."""
        while data:
            while stream.may_send <= 0 or self.pipe.full:
                await self.pipe.change()
            part, data = data[: min(CHUNK, stream.may_send)], data[min(CHUNK, stream.may_send) :]
            stream.may_send -= len(part)
            self.pipe.write(FRAME.pack(stream.number, DATA, len(part)) + part)

    async def next(self, stream: Stream) -> bytes:
        """What came next; ``b""``: the end. Raises: ConnectionResetError."""
        while not stream.inbox:
            await self.pipe.change()
        data = stream.inbox.popleft()
        if data is None:
            raise ConnectionResetError("the connection broke at the other end")
        return data

    def consumed(self, stream: Stream, size: int) -> None:
        """So many bytes have gone where they belong. The other end hears of it now and then."""
        stream.consumed += size
        if stream.consumed >= WINDOW // 2:
            stream.may_come += stream.consumed
            self._frame(stream, CREDIT, stream.consumed)
            stream.consumed = 0

    def end(self, stream: Stream) -> None:
        """Nothing more will be sent."""
        self._frame(stream, END)

    def reset(self, stream: Stream) -> None:
        """The connection broke at this end."""
        self._frame(stream, RESET)

    def forget(self, stream: Stream) -> None:
        """Whatever still comes of it is dropped."""
        self._live.pop(stream.number, None)
        self._tasks.pop(stream.number, None)

    def close(self) -> "list[asyncio.Future[None]]":
        """Break the connections that the other end opened; what to wait for."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    def receive(self, message: bytes) -> None:
        """Take in a message of the other end, old or new. Raises: Violation."""
        self.put(message)
        while self.handle():
            pass

    def put(self, message: bytes) -> None:
        """Half of :meth:`receive`: :meth:`handle` is the other half. Raises: Violation."""
        self._rest += self.pipe.accept(message)

    def handle(self) -> bool:
        """Handle some of what was put; whether there may be more. Raises: Violation."""
        for _ in range(FRAMES):
            if len(self._rest) < FRAME.size:
                break
            number, kind, size = FRAME.unpack_from(self._rest)
            length = size if kind == DATA else 0
            if length > CHUNK or (kind == DATA and not length):
                raise Violation("a frame of a size that is not sent")
            if len(self._rest) < FRAME.size + length:
                break
            data = bytes(self._rest[FRAME.size : FRAME.size + length])
            del self._rest[: FRAME.size + length]
            self._take(number, kind, size, data)
        else:
            return True
        self.pipe.tell()
        return False

    def _take(self, number: int, kind: int, size: int, data: bytes) -> None:
        if kind == OPEN:
            self._opened(number)
            return
        stream = self._live.get(number)
        if stream is None:
            return
        if kind == CREDIT:
            stream.may_send += size
            return
        stream.may_come -= len(data)
        allowed = {0: (DATA, END, RESET), END: (RESET,)}.get(stream.over, ())
        if kind not in allowed or stream.may_come < 0:
            raise Violation("more than a stream may send")
        stream.over = 0 if kind == DATA else kind
        stream.inbox.append(None if kind == RESET else data)

    def _opened(self, number: int) -> None:
        if self._serve is None or number <= self._last:
            raise Violation("a stream that may not be opened")
        self._last, stream = number, Stream(number)
        if len(self._live) >= MAX_STREAMS:
            self.reset(stream)
            return
        self._live[number] = stream
        self._tasks[number] = asyncio.ensure_future(self._serve(stream))

    def _frame(self, stream: Stream, kind: int, size: int = 0) -> None:
        self.pipe.write(FRAME.pack(stream.number, kind, size))
