"""Ports inside, from outside: HTTP and WebSocket, as the hosts ``<port>-<sandbox>.<domain>`` carry them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import (
    ClientConnectionError,
    ClientSession,
    ClientTimeout,
    WSMessage,
    WSMsgType,
    WSServerHandshakeError,
    web,
)

from agentrl.testing.guest import GuestGone
from agentrl.testing.loopback_e2b.errors import ApiError

if TYPE_CHECKING:
    from agentrl.testing.loopback_e2b.machines import Machine

Sender = Callable[[Any], Awaitable[None]]
CHUNK = 64 << 10
TOKEN_HEADER = "e2b-traffic-access-token"
_OURS = {"host", "e2b-sandbox-id", "e2b-sandbox-port", TOKEN_HEADER}
_OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "content-length", "content-encoding"}


class Relay:
    """A port of this host's loopback that leads to one inside a machine, so that any HTTP client can use it."""

    def __init__(self, machine: Machine, port: int) -> None:
        self._machine, self._port = machine, port
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._writers: set[asyncio.StreamWriter] = set()

    async def address(self) -> str:
        """``host:port`` of this host."""
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Cut everything."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await self._machine.guest.open_port(self._port)
        except (OSError, GuestGone):
            writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        try:
            await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
        finally:
            self._writers -= {writer, there_writer}
            writer.close()
            there_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def carry(machine: Machine, port: int, request: web.Request) -> web.StreamResponse:
    """Answer ``request`` with what a server inside says. Raises: ApiError."""
    if machine.traffic_token is not None and request.headers.get(TOKEN_HEADER) != machine.traffic_token:
        raise ApiError(403, "the traffic access token is missing or wrong")
    relay = machine.relays.setdefault(port, Relay(machine, port))
    url = f"http://{await relay.address()}{request.path_qs}"
    headers = {k: v for k, v in request.headers.items() if k.lower() not in _OURS | _OF_ONE_HOP}
    way = _carry_socket if request.headers.get("Upgrade", "").lower() == "websocket" else _carry_http
    async with ClientSession(timeout=ClientTimeout(None), auto_decompress=False) as http:
        try:
            return await way(http, url, headers, request)
        except WSServerHandshakeError as error:
            raise ApiError(error.status, error.message) from error
        except ClientConnectionError as error:
            raise ApiError(502, "The sandbox is running but port is not open") from error


async def _carry_http(
    http: ClientSession, url: str, headers: dict[str, str], request: web.Request
) -> web.StreamResponse:
    body = request.content if request.body_exists else None
    async with http.request(request.method, url, headers=headers, data=body, allow_redirects=False) as there:
        kept = {k: v for k, v in there.headers.items() if k.lower() not in _OF_ONE_HOP - {"content-encoding"}}
        answer = web.StreamResponse(status=there.status, headers=kept)
        await answer.prepare(request)
        async for data in there.content.iter_any():
            await answer.write(data)
        await answer.write_eof()
    return answer


async def _carry_socket(
    http: ClientSession, url: str, headers: dict[str, str], request: web.Request
) -> web.StreamResponse:
    kept = {k: v for k, v in headers.items() if not k.lower().startswith("sec-websocket")}
    async with http.ws_connect(url, headers=kept, max_msg_size=0) as there:
        here = web.WebSocketResponse(max_msg_size=0)
        await here.prepare(request)

        async def inward() -> None:
            async for message in here:
                await _pass_on(message, there.send_str, there.send_bytes)
            await there.close(code=here.close_code or 1000)

        async def outward() -> None:
            async for message in there:
                await _pass_on(message, here.send_str, here.send_bytes)
            await here.close(code=there.close_code or 1000)

        with suppress(ConnectionError):
            await asyncio.gather(inward(), outward())
    return here


async def _pass_on(message: WSMessage, send_str: Sender, send_bytes: Sender) -> None:
    if message.type == WSMsgType.TEXT:
        await send_str(message.data)
    elif message.type == WSMsgType.BINARY:
        await send_bytes(message.data)
