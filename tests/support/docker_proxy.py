"""Between a client and a Docker engine: a TCP port in front of its socket, which troubles the requests that a test names."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Literal, Self

Trouble = Literal["cut", "silence", "hold"]
_REQUEST = re.compile(rb"[A-Z]+ (\S+) HTTP/1\.1\r\n")


class EngineProxy:
    """``host``: what to give as ``DOCKER_HOST``. ``troubled``: set when a request of :meth:`trouble` has come."""

    def __init__(self, docker_host: str) -> None:
        self._socket = docker_host.removeprefix("unix://")
        self._word, self._trouble = "", ""
        self.troubled, self.go = asyncio.Event(), asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    def trouble(self, word: str, what: Trouble) -> None:
        """The next request with ``word`` in its path reaches the engine, but its answer is ``cut`` off or never comes
        (``silence``); with ``hold`` the request itself waits for :attr:`go`."""
        self._word, self._trouble = word, what

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.host = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.go.set()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._socket)
        self._writers |= {writer, up_writer}
        deaf = asyncio.Event()
        back = asyncio.create_task(self._answers(up_reader, writer, deaf))
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._meet(data, deaf)
                up_writer.write(data)
                await up_writer.drain()
            if up_writer.can_write_eof():
                up_writer.write_eof()
        await back
        for end in (writer, up_writer):
            end.close()
            self._writers.discard(end)

    async def _meet(self, data: bytes, deaf: asyncio.Event) -> None:
        request = _REQUEST.match(data)
        if not self._word or request is None or self._word not in request[1].decode():
            return
        self._word = ""
        self.troubled.set()
        if self._trouble == "hold":
            await self.go.wait()
        else:
            deaf.set()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deaf: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if deaf.is_set() and self._trouble == "cut":
                    writer.transport.abort()
                elif not deaf.is_set():
                    writer.write(data)
                    await writer.drain()
            writer.close()
