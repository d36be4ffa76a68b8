"""The host's end of the socket to an exec server: overlapping requests, one answer each."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.api import SandboxGone

HEADER = struct.Struct("!IQ")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the exec server said: a JSON object and the payloads behind it."""

    head: Mapping[str, Any]
    payloads: tuple[bytes, ...]


class Channel:
    """Requests in flight over one socket. When the other end is gone, every one of them raises SandboxGone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._gone = ""
        self._task = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, sock: socket.socket) -> Channel:
        """Take over a connected socket."""
        return cls(*await asyncio.open_connection(sock=sock))

    def send(self, head: Mapping[str, Any], payload: bytes = b"") -> tuple[int, asyncio.Future[Answer]]:
        """Send a request; its number and its future answer. Raises: SandboxGone."""
        if self._gone:
            raise SandboxGone(self._gone)
        number = next(self._numbers)
        encoded = json.dumps({**head, "id": number}).encode()
        self._writer.write(HEADER.pack(len(encoded), len(payload)) + encoded)
        if payload:
            self._writer.write(payload)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        return number, future

    def close(self, why: str) -> None:
        """Hang up: the exec server ends, and the sandbox with it."""
        self._gone = self._gone or why
        self._writer.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SandboxGone(self._gone))
                future.exception()  # whoever waits is told; a caller that left must not become a warning
        self._waiting.clear()

    async def _listen(self) -> None:
        try:
            while True:
                head_size, body_size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                head = json.loads(await self._reader.readexactly(head_size))
                body = await self._reader.readexactly(body_size)
                self._deliver(head, body)
        except (asyncio.IncompleteReadError, OSError):
            self.close("the sandbox is gone: it was closed, reached its lifetime, or ran out of memory")

    def _deliver(self, head: Mapping[str, Any], body: bytes) -> None:
        payloads, start = [], 0
        for size in head["sizes"]:
            payloads.append(body[start : start + size])
            start += size
        future = self._waiting.pop(head["id"], None)
        if future is not None and not future.done():
            future.set_result(Answer(head, tuple(payloads)))
