"""A TCP relay that loses connections on purpose: what a client sees of a bad network."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

Until = Callable[[], Awaitable[object]]


class CuttingRelay:
    """Async context manager; ``port`` leads to ``target``. Streams that arrive whole pass, but for those that :meth:`cut_next` names."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._cuts: deque[tuple[bytes, Until | None]] = deque()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def cut_next(self, behind: bytes = b"", until: Until | None = None) -> None:
        """Of the next event stream only what ends with ``behind`` arrives (nothing: no byte), then, after ``until``, the connection
        is gone. The server has written all of it."""
        self._cuts.append((behind, until))

    async def __aenter__(self) -> CuttingRelay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends, ways = [writer], []
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            ends.append(back)
            ways = [asyncio.create_task(way) for way in (_pump(reader, back), self._answer(there, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ways:
                task.cancel()
            for end in ends:
                end.transport.abort()
            await asyncio.gather(*ways, *(end.wait_closed() for end in ends), return_exceptions=True)

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await there.read(1 << 20):
            if b"text/event-stream" in data and self._cuts:
                behind, until = self._cuts.popleft()
                while behind not in data and (more := await there.read(1 << 20)):
                    data += more
                writer.write(data[: data.index(behind) + len(behind)] if behind else b"")
                await writer.drain()
                if until is not None:
                    await until()
                return
            writer.write(data)
            await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
