"""The program in the sandbox: agents connect to its loopback port, the host connects by WebSocket or comes by to exchange messages.

Started with ``FOLDER PORT WEBSOCKET`` and a token on stdin. It goes into the background, writes where it listens to
``FOLDER/ready``, and lives until the host says goodbye or the sandbox ends. Only who shows the token is the host. Started
twice for one folder, it runs once.
"""

# ruff: noqa: T201, UP037, UP041

import asyncio
import hmac
import json
import os
import struct
import sys
import time
from pathlib import Path

from .carry import carry
from .pipe import HEAD, PART, Pipe, Violation, confirmed_by
from .streams import Streams
from .websocket import WebSocket, shake_hands

HELLO_SEC = 10.0
READY_SEC = 20.0
HOLD = struct.Struct("!d")
"""Seconds for which an exchange may be held until there is something to say; less than none: goodbye."""
SETTLE_SEC = 0.003
"""What belongs together rarely comes as one piece."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Program:
    """One agent's side of the channel."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._pipe = Pipe()
        self._streams = Streams(self._pipe)
        self._host: "asyncio.Future[Any] | None" = None
        self.over: "asyncio.Future[None]" = asyncio.get_event_loop().create_future()

    async def serve_agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection of the agent's."""
        await carry(self._streams, self._streams.open(), reader, writer)

    async def serve_websocket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection that may be the host's; the newest one that is takes over."""
        try:
            socket = await asyncio.wait_for(shake_hands(reader, writer), HELLO_SEC)
            hello = await asyncio.wait_for(socket.receive(), HELLO_SEC)
            message = self._authentic(hello or b"")
            self._streams.receive(message)
            if self._host is not None:
                self._host.cancel()
            self._host = asyncio.ensure_future(self._converse(socket, confirmed_by(message)))
            await self._host
        except (Violation, OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # it comes again if it was the host
        finally:
            writer.close()

    async def serve_exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A visit of the host: one message in, one message out, as soon as there is something to say."""
        try:
            self._authentic(await reader.readexactly(len(self._token)))
            (hold_sec,) = HOLD.unpack(await reader.readexactly(HOLD.size))
            message = await reader.read(-1)
            if hold_sec < 0:
                self.goodbye()
                return
            self._streams.receive(message)
            place = confirmed_by(message)
            await self._worth_saying(place, hold_sec)
            writer.write(self._pipe.message(place)[0])
            await writer.drain()
        except (Violation, OSError, EOFError):
            pass  # an answer that is missing tells the host enough
        finally:
            writer.close()

    def goodbye(self) -> None:
        """There is no host any more."""
        if not self.over.done():
            self.over.set_result(None)

    async def _worth_saying(self, place: int, hold_sec: float) -> None:
        deadline = time.monotonic() + hold_sec
        while not self._pipe.due(place) and time.monotonic() < deadline:
            try:
                await asyncio.wait_for(self._pipe.change(), max(0.0, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                return
        if hold_sec:
            await asyncio.sleep(SETTLE_SEC)

    async def _converse(self, socket: WebSocket, place: int) -> None:
        telling = asyncio.ensure_future(self._tell(socket, place))
        try:
            while True:
                message = await socket.receive()
                if message is None:
                    return
                self._streams.receive(message)
                if len(message) == HEAD.size:
                    await socket.send(self._pipe.word())  # the host asks whether somebody is there
        finally:
            telling.cancel()

    async def _tell(self, socket: WebSocket, place: int) -> None:
        """A greeting, and everything from ``place`` on."""
        try:
            await socket.send(self._pipe.word())
            while True:
                while not self._pipe.due(place):
                    await self._pipe.change()
                message, place = self._pipe.message(place, PART)
                await socket.send(message)
        except OSError:
            pass  # whoever reads notices too

    def _authentic(self, message: bytes) -> bytes:
        """``message`` without the token. Raises: Violation."""
        size = len(self._token)
        if not hmac.compare_digest(message[:size], self._token):
            raise Violation("not the host")
        return message[size:]


async def serve(folder: Path, port: int, websocket: bool, token: bytes) -> None:
    """Listen, say where, and serve until the host says goodbye. Raises: OSError."""
    program = Program(token)
    agents = await _listen(program, port)
    where = {"port": agents.sockets[0].getsockname()[1], "websocket": 0}
    # A name that no file has: it stays whatever becomes of the folder, and nobody outside this machine can use it.
    await asyncio.start_unix_server(program.serve_exchange, "\0" + folder.name, backlog=64)
    if websocket:
        host = await asyncio.start_server(program.serve_websocket, "0.0.0.0", 0)
        where["websocket"] = host.sockets[0].getsockname()[1]
    _write(folder, where)
    await program.over


async def _listen(program: Program, port: int) -> "Any":
    """For agents. Whoever had ``port`` before may be about to end. Raises: OSError."""
    deadline = time.monotonic() + READY_SEC / 2
    while True:
        try:
            return await asyncio.start_server(program.serve_agent, "127.0.0.1", port, backlog=256)
        except OSError:
            if not port or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


def _write(folder: Path, where: "dict[str, Any]") -> None:
    new = folder / "ready.new"
    new.write_text(json.dumps(where))
    new.rename(folder / "ready")


def _background(folder: Path, port: int, websocket: bool, token: bytes) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve(folder, port, websocket, token))
    except OSError as error:
        _write(folder, {"error": str(error)})
    finally:
        os._exit(0)


def main() -> None:
    """Start once, and print where it listens as JSON."""
    folder, port, websocket = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"
    token = sys.stdin.readline().strip().encode()
    try:
        (folder / "started").mkdir()
    except FileExistsError:
        pass
    else:
        if os.fork() == 0:
            _background(folder, port, websocket, token)
    deadline = time.monotonic() + READY_SEC
    while not (folder / "ready").exists():
        if time.monotonic() > deadline:
            sys.exit("the relay's program does not answer")
        time.sleep(0.01)
    print((folder / "ready").read_text())
