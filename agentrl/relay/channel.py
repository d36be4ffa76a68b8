"""How a pipe's messages travel between the host and the program in a sandbox: over a WebSocket that the host opens, or by
commands that it runs inside.

Both start where the other end says that it is, so that either may take over from the other at any moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import aiohttp

from agentrl.errors import SandboxError, SandboxGone, SandboxRefused
from agentrl.relay.inside.pipe import PART, Violation, confirmed_by
from agentrl.relay.inside.streams import Streams
from agentrl.relay.inside.websocket import MAX_MESSAGE
from agentrl.relay.launch import Program, ProgramLost

HEARTBEAT_SEC = 10.0
"""Something is said that often, and answered: proxies close what is silent for a minute, and answer pings themselves."""
SILENCE_SEC = 20.0
"""Where nothing was heard for so long, nobody is."""
CONNECT_SEC = 15.0
HOLD_SEC = 20.0
"""How long one look may hold a connection of the provider's open."""
_CLOSE_SEC = 1.0
_BACKOFF_SEC = 0.1
_BACKOFF_CAP_SEC = 5.0
_log = logging.getLogger(__name__)


async def by_websocket(streams: Streams, program: Program, opened: asyncio.Event) -> None:
    """Exchange messages until the connection is cut, or cannot be had. ``opened`` is set once the program has answered.

    Raises: SandboxGone.
    """
    try:
        address = await program.sandbox.port_url(program.websocket)
        if address is None:
            return
        # The way out of here may be a proxy, which only the environment knows.
        async with aiohttp.ClientSession(trust_env=True) as session:
            async with asyncio.timeout(CONNECT_SEC):
                socket = await _connect(session, *address)
                await socket.send_bytes(program.token.encode() + streams.pipe.word())
                greeting = await _receive(socket)
            await _take_in(streams, greeting)
            opened.set()
            _log.debug("the relay's WebSocket into %s is open", program.sandbox.id)
            try:
                await first(_tell(streams, socket, confirmed_by(greeting)), _listen(streams, socket))
            finally:
                await _close(socket)
    except SandboxGone:
        raise
    except (aiohttp.ClientError, OSError, Violation, SandboxError) as error:
        # Only what kind of error: its text may carry the provider's token.
        _log.debug("the relay's WebSocket into %s ended: %s", program.sandbox.id, type(error).__name__)


async def by_polls(streams: Streams, program: Program, *, for_sec: float | None = None) -> None:
    """Exchange messages by commands, for so long or for ever. Raises: ProgramLost, SandboxGone, SandboxRefused."""
    limit = asyncio.timeout(for_sec)
    try:
        async with limit:
            await first(_pull(streams, program), _push(streams, program))
    except Violation as error:
        raise ProgramLost(
            f"the relay's program in {program.sandbox.id} is not the one that was started: {error}"
        ) from error
    except TimeoutError:
        if not limit.expired():
            raise


async def _connect(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]
) -> aiohttp.ClientWebSocketResponse:
    return await session.ws_connect(url, headers=headers, max_msg_size=MAX_MESSAGE)


async def _close(socket: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SEC):
            await socket.close()


async def _tell(streams: Streams, socket: aiohttp.ClientWebSocketResponse, place: int) -> None:
    pipe = streams.pipe
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_SEC):
                while not pipe.due(place):
                    await pipe.change()
        message, place = pipe.message(place, PART)
        await socket.send_bytes(message)


async def _listen(streams: Streams, socket: aiohttp.ClientWebSocketResponse) -> None:
    while True:
        await _take_in(streams, await _receive(socket))


async def _receive(socket: aiohttp.ClientWebSocketResponse) -> bytes:
    message = await socket.receive(timeout=SILENCE_SEC)
    if message.type is not aiohttp.WSMsgType.BINARY:
        raise ConnectionResetError("the WebSocket was closed")
    data: bytes = message.data
    return data


async def _pull(streams: Streams, program: Program) -> None:
    """Ask for what the other end has to say, all the time."""
    pipe = streams.pipe
    while True:
        await _persist(streams, program, pipe.word, HOLD_SEC)


async def _push(streams: Streams, program: Program) -> None:
    """Bring what this end has to say as soon as there is something."""
    pipe = streams.pipe
    while True:
        while pipe.end == pipe.confirmed:
            await pipe.change()
        await _persist(streams, program, lambda: pipe.message(pipe.confirmed)[0], 0.0)


async def _persist(streams: Streams, program: Program, message: Callable[[], bytes], hold_sec: float) -> None:
    """One exchange, tried until it succeeds."""
    delay = _BACKOFF_SEC
    while True:
        try:
            answer = await program.exchange(message(), hold_sec=hold_sec)
        except (SandboxGone, SandboxRefused, ProgramLost):
            raise
        except SandboxError as error:
            _log.debug("the relay's program in %s was not reached: %s", program.sandbox.id, error)
            await asyncio.sleep(random.uniform(0, delay))
            delay = min(2 * delay, _BACKOFF_CAP_SEC)
        else:
            if not answer:  # it hung up in the middle
                raise ProgramLost(f"the relay's program in {program.sandbox.id} was killed")
            await _take_in(streams, answer)
            return


async def _take_in(streams: Streams, message: bytes) -> None:
    """Whatever a program says, nobody else waits long for it to be read."""
    streams.put(message)
    more = True
    while more:
        more = streams.handle()
        await asyncio.sleep(0)


async def first(*works: Awaitable[object]) -> None:
    """Until one of ``works`` ends; none is left running. Raises what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
