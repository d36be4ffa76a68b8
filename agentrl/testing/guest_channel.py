"""The socket between a host and the first process of a guest, and the processes that go over it.

A request is a memfd with JSON, so that it may be long, and the ends of pipes; an answer is a packet of JSON, and sometimes a
connection. See :mod:`agentrl.testing.guest_inside` for the other side.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

CHUNK = 256 << 10
SEND_SEC = 60.0


class GuestGone(Exception):
    """The guest was destroyed, or its first process ended."""


class Process:
    """A process inside. ``pid`` is its number inside; it leads a session and a process group of its own.

    ``stdout`` and ``stderr`` end when everyone who holds them has closed them; ``wait`` returns when the process itself has ended.
    """

    def __init__(self, channel: Channel, number: int) -> None:
        loop = asyncio.get_running_loop()
        self._channel, self.number = channel, number
        self.pid = 0
        self.started: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout = asyncio.StreamReader(CHUNK)
        self.stderr = asyncio.StreamReader(CHUNK)
        self._transports: list[asyncio.ReadTransport | asyncio.WriteTransport] = []

    @property
    def returncode(self) -> int | None:
        """The exit code, -n for signal n; None while it runs, or when it went with its guest."""
        return self.exited.result() if self.exited.done() and not self.exited.exception() else None

    async def wait(self) -> int:
        """The exit code, -n for signal n. Raises: GuestGone."""
        return await asyncio.shield(self.exited)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to it alone or to its whole process group; nothing happens when it has ended. Raises: GuestGone."""
        self._channel.request({"do": "signal", "target": self.number, "signal": number, "group": group, "number": 0})

    def close(self) -> None:
        """Let go of its pipes: whoever still writes to them gets SIGPIPE. Idempotent."""
        for transport in self._transports:
            if not transport.is_closing():
                transport.abort() if isinstance(transport, asyncio.WriteTransport) else transport.close()

    async def output(self) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr, when all of them have ended. Raises: GuestGone."""
        try:
            out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
            return await self.wait(), out, err
        finally:
            self.close()

    async def make_pipes(self, *, stdin: bool) -> list[int]:
        """Make the pipes; returns the ends that belong inside, for the caller to close."""
        loop, theirs = asyncio.get_running_loop(), []
        if stdin:
            end, mine = os.pipe()
            theirs.append(end)
            sender, protocol = await loop.connect_write_pipe(
                lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(mine, "wb", 0)
            )
            self.stdin = asyncio.StreamWriter(sender, protocol, None, loop)
            self._transports.append(sender)
        for reader in (self.stdout, self.stderr):
            mine, end = os.pipe()
            theirs.append(end)
            receiver, _ = await loop.connect_read_pipe(
                partial(asyncio.StreamReaderProtocol, reader), os.fdopen(mine, "rb", 0)
            )
            self._transports.append(receiver)
        return theirs


class Channel:
    """The host's end. When the other end is gone, whatever waits for it raises GuestGone."""

    def __init__(self, name: str, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._name, self._sock, self._number = name, sock, 0
        self._processes: dict[int, Process] = {}
        self._connecting: dict[int, asyncio.Future[socket.socket]] = {}
        loop.add_reader(sock, self._on_packet)

    async def start(self, body: Mapping[str, Any], *, stdin: bool) -> Process:
        """A process that does what ``body`` says. Raises: OSError, GuestGone."""
        process = Process(self, self._next())
        self._processes[process.number] = process
        theirs = await process.make_pipes(stdin=stdin)
        try:
            self.request({**body, "number": process.number}, theirs)
            await process.started
        except BaseException:
            process.close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return process

    async def connect(self, port: int) -> socket.socket:
        """A connection to a port inside. Raises: OSError (nobody listens), GuestGone."""
        number = self._next()
        future: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._connecting[number] = future
        self.request({"do": "connect", "port": port, "number": number})
        return await future

    def request(self, body: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one request. Raises: GuestGone."""
        with os.fdopen(os.memfd_create("request"), "w+b", 0) as file:
            file.write(json.dumps(body).encode("utf-8", "surrogateescape"))
            file.seek(0)
            try:
                self._send([file.fileno(), *fds])
            except OSError as error:
                raise GuestGone(f"{self._name} is gone: {error}") from error

    def close(self) -> None:
        """Hang up: the guest dies. Idempotent."""
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
        gone = GuestGone(f"{self._name} is gone")
        for process in self._processes.values():
            settle(process.started, gone)
            settle(process.exited, gone)
        for connecting in self._connecting.values():
            settle(connecting, gone)
        settle(self.ready, gone)
        self._processes.clear()
        self._connecting.clear()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _send(self, fds: Sequence[int]) -> None:
        try:
            socket.send_fds(self._sock, [b"."], fds)
        except BlockingIOError:  # hundreds are under way; the other side takes them in milliseconds
            select.select([], [self._sock], [], SEND_SEC)
            socket.send_fds(self._sock, [b"."], fds)

    def _on_packet(self) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(self._sock, 65536, 1)
        except OSError:
            packet, fds = b"", []
        if not packet:
            self.close()
            return
        answer = json.loads(packet)
        if "ready" in answer:
            settle(self.ready, None)
        elif answer["number"] in self._connecting:
            self._on_connection(answer, fds)
        elif answer["number"] in self._processes:
            self._on_process(answer)

    def _on_connection(self, answer: Mapping[str, Any], fds: Sequence[int]) -> None:
        future = self._connecting[answer["number"]]
        if fds:
            connected = socket.socket(fileno=fds[0])
            if not settle(future, connected):
                connected.close()
        elif "errno" in answer:
            settle(future, OSError(answer["errno"], answer["error"]))
        elif "code" in answer:
            del self._connecting[answer["number"]]

    def _on_process(self, answer: Mapping[str, Any]) -> None:
        process = self._processes[answer["number"]]
        if "pid" in answer:
            process.pid = answer["pid"]
            settle(process.started, None)
        elif "errno" in answer:
            settle(process.started, OSError(answer["errno"], answer["error"]))
        else:
            settle(process.exited, answer["code"])
            del self._processes[answer["number"]]


def settle(future: asyncio.Future[Any], outcome: object) -> bool:
    """Give a future its result or exception, if it has none; one that nobody waits for is no warning."""
    if future.done():
        return False
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
        future.exception()
    else:
        future.set_result(outcome)
    return True
