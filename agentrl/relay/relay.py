"""The host's end of a relay: keeps a program in a sandbox running and a channel to it open, and connects what comes to the gateway.

A channel that breaks is made anew and nothing is lost. A program that is killed is started anew at the same port; then the
connections of that moment break, as they would if a network did. Not here: how messages travel (:mod:`agentrl.relay.channel`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from types import TracebackType

from agentrl.errors import SandboxError
from agentrl.relay.channel import by_polls, by_websocket, first
from agentrl.relay.gate import Gate
from agentrl.relay.inside.carry import carry
from agentrl.relay.inside.pipe import Pipe
from agentrl.relay.inside.streams import Stream, Streams
from agentrl.relay.launch import Program, ProgramLost, launch
from agentrl.sandbox import Sandbox

STEADY_SEC = 5.0
"""A WebSocket that lives as long has nothing against us."""
PATIENCE_SEC = 0.5
"""How long a WebSocket may take to open before polls stand in."""
DETOUR_SEC = 60.0
"""How long polls stand in at most before a WebSocket is tried again."""
_log = logging.getLogger(__name__)


class Relay:
    """Async context manager. ``url``: where the agent finds the gateway.

    ``port``: the gateway's on the host's loopback, the only one that is ever connected to; ``root``: the only path below which
    requests go through; ``tunnel``: whether the sandbox has :meth:`~agentrl.sandbox.Sandbox.port_url`.

    Raises: SandboxRefused, SandboxError at the start; at the end too, if the relay broke for good while it was needed.
    """

    def __init__(self, sandbox: Sandbox, *, port: int, root: str, tunnel: bool) -> None:
        self._sandbox, self._port, self._root, self._tunnel = sandbox, port, root, tunnel
        self._program: Program | None = None
        self._streams = Streams(Pipe(), self._serve)
        self._keeper: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """``http://127.0.0.1:…``, the same for the whole block."""
        assert self._program is not None, "not started"
        return f"http://127.0.0.1:{self._program.port}"

    @property
    def folder(self) -> str:
        """Where the program's files lie in the sandbox."""
        assert self._program is not None, "not started"
        return self._program.folder

    @property
    def broken(self) -> bool:
        """Whether it ended by itself, for good."""
        return self._keeper is not None and self._keeper.done()

    async def __aenter__(self) -> Relay:
        self._program = await launch(self._sandbox, websocket=self._tunnel)
        self._keeper = asyncio.create_task(self._keep(self._program))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._keeper is not None and self._program is not None, "not started"
        broken = self._keeper.exception() if self.broken else None
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        await self._program.stop()
        if broken is not None and not isinstance(error, SandboxError):
            raise broken

    async def _keep(self, program: Program) -> None:
        """Until cancelled. Raises: SandboxGone, SandboxRefused, SandboxError."""
        while True:
            try:
                await self._converse(program)
            except ProgramLost as error:
                _log.warning("%s: it is started again", error)
            finally:
                await self._drop()
            await program.stop()
            self._streams = Streams(Pipe(), self._serve)
            program = self._program = await launch(self._sandbox, websocket=self._tunnel, port=program.port)

    async def _converse(self, program: Program) -> None:
        """Over a WebSocket while there is one, by polls while there is none. Raises: ProgramLost, SandboxGone, SandboxRefused."""
        if not self._tunnel:
            await by_polls(self._streams, program)
        failures = 0
        while True:
            started, opened = time.monotonic(), asyncio.Event()
            await first(by_websocket(self._streams, program, opened), self._stand_in(program, opened))
            steady = opened.is_set() and time.monotonic() - started >= STEADY_SEC
            failures = 0 if steady else failures + 1
            if failures:
                await by_polls(self._streams, program, for_sec=min(2.0**failures, DETOUR_SEC))

    async def _stand_in(self, program: Program, opened: asyncio.Event) -> None:
        """Polls as long as a WebSocket is wanted and not there. Never ends by itself."""
        try:
            async with asyncio.timeout(PATIENCE_SEC):
                await opened.wait()
        except TimeoutError:
            await first(by_polls(self._streams, program), opened.wait())
        await asyncio.Event().wait()

    async def _serve(self, stream: Stream) -> None:
        """A connection of the agent's, carried on to the gateway."""
        streams = self._streams
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            streams.reset(stream)
            streams.forget(stream)
            return
        await carry(streams, stream, reader, writer, Gate(self._root).admit)

    async def _drop(self) -> None:
        if tasks := self._streams.close():
            await asyncio.wait(tasks)
