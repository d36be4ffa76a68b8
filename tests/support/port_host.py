"""A provider's way into a sandbox: HTTP under a name for each port, for who has the provider's token, and connections that do not last."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

HEADER, SECRET = "x-provider-token", "provider-secret-4711"


class PortHost:
    """Async context manager. ``url`` leads to the port that was asked for last.

    ``refuse``: answer so instead (a status line). ``budget()``: bytes after which a connection is cut, None: never.
    ``mute``: connections stay open and nothing passes. ``visits`` counts connections that were let through, ``answers`` what came
    back on them, piece by piece.
    """

    def __init__(self) -> None:
        self.refuse = b""
        self.mute = False
        self.visits = self.cuts = self.answers = 0
        self.visited = asyncio.Condition()
        self._target = 0
        self._serving: set[asyncio.Task[None]] = set()

    def budget(self) -> int | None:
        """How much the next connection may carry."""
        return None

    def lead(self, port: int) -> tuple[str, Mapping[str, str]]:
        """What ``port_url`` says."""
        self._target = port
        return f"http://127.0.0.1:{self._port}/?token={SECRET}", {HEADER: SECRET}

    def cut(self) -> None:
        """End all connections."""
        for task in self._serving:
            task.cancel()

    async def until_visits(self, number: int) -> None:
        """Until so many connections were let through."""
        async with self.visited:
            await self.visited.wait_for(lambda: self.visits >= number)

    async def __aenter__(self) -> PortHost:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        refusal = self.refuse or (b"" if f"{HEADER}: {SECRET}".encode() in head.lower() else b"401 Unauthorized")
        if refusal:
            writer.write(b"HTTP/1.1 " + refusal + b"\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        back.write(head)
        async with self.visited:
            self.visits += 1
            self.visited.notify_all()
        left = [self.budget()]
        ways = self._pump(reader, back, left), self._pump(there, writer, left, answers=1)
        pumps = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            back.transport.abort()
            self.cuts += 1
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[Any], *, answers: int = 0
    ) -> None:
        """Copy in pieces of odd sizes until the end, or until what is left for both directions is used up."""
        while data := await reader.read(4001):
            if left[0] is not None:
                data = data[: left[0]]
                left[0] -= len(data)
            if not self.mute:
                writer.write(data)
                await writer.drain()
                self.answers += answers
            if left[0] == 0:
                return
        while self.mute:
            await asyncio.sleep(0.01)


class Ported:
    """A sandbox that has a way in. ``instead``: what ``port_url`` raises, or that there is none today."""

    def __init__(self, sandbox: Any, host: PortHost) -> None:
        self._sandbox, self._host = sandbox, host
        self.commands: list[Any] = []
        self.instead: Exception | str = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def exec(self, command: Any, **options: Any) -> Any:
        """Remembered and run."""
        self.commands.append(command)
        return await self._sandbox.exec(command, **options)

    async def port_url(self, port: int) -> tuple[str, Mapping[str, str]] | None:
        """Through the port host, or what a test wants instead."""
        if isinstance(self.instead, Exception):
            raise self.instead
        return None if self.instead else self._host.lead(port)
