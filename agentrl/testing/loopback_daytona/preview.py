"""Previews of the loopback provider: HTTP and WebSocket from outside to a port inside a machine.

aiohttp's client can connect to no socket that is open already, so each port gets a Unix socket on this host, and bytes are pumped
from there to the guest. Preview traffic is no activity: the provider's documentation says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

import aiohttp
from aiohttp import ClientSession, UnixConnector, WSMsgType, web

from agentrl.testing.guest import GuestGone
from agentrl.testing.loopback_daytona.account import Account
from agentrl.testing.loopback_daytona.machine import Machine
from agentrl.testing.loopback_daytona.shapes import Refused

TOKEN_HEADER = "X-Daytona-Preview-Token"
CHUNK = 64 << 10
MESSAGE_CAP = 1 << 30
HOP_BY_HOP = frozenset(
    ("host", "connection", "upgrade", "transfer-encoding", "content-length", "keep-alive", TOKEN_HEADER.lower())
)


class Previews:
    """One way in for each port that was asked for."""

    def __init__(self, account: Account, folder: Path) -> None:
        self._account, self._folder = account, folder
        self._ways: dict[tuple[str, int], tuple[asyncio.Server, ClientSession]] = {}
        self._lock = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Everything below a preview's URL."""
        where = "/preview/{port:\\d+}-{id:[^/]+}"
        return [web.route("*", where + "{path:/.*}", self.handle), web.route("*", where, self.handle)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on. Raises: Refused."""
        machine, port = self._account.find(request.match_info["id"]), int(request.match_info["port"])
        if not machine.public and request.headers.get(TOKEN_HEADER) != machine.token:
            raise Refused(401, "unauthorized: preview token is invalid")
        if machine.state != "started":
            raise Refused(400, "bad request: the sandbox is not started")
        session = await self._way(machine, port)
        path = request.match_info.get("path") or "/"
        target = f"http://127.0.0.1:{port}{path}" + (f"?{request.query_string}" if request.query_string else "")
        carry = _websocket if request.headers.get("Upgrade", "").lower() == "websocket" else _http
        try:
            with machine.answering(request):
                return await carry(session, request, target)
        except (aiohttp.ClientError, ConnectionError):
            raise Refused(502, f"bad gateway: nobody answers at port {port}") from None

    async def aclose(self) -> None:
        """Close all ways."""
        for server, session in self._ways.values():
            server.close()
            await session.close()

    async def _way(self, machine: Machine, port: int) -> ClientSession:
        async with self._lock:
            if (machine.id, port) not in self._ways:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = str(self._folder / f"{len(self._ways)}.sock")

                async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    await _pump(machine, port, reader, writer)

                server = await asyncio.start_unix_server(pump, path)
                session = ClientSession(
                    connector=UnixConnector(path, limit=0), auto_decompress=False, timeout=aiohttp.ClientTimeout()
                )
                self._ways[machine.id, port] = server, session
            return self._ways[machine.id, port][1]


async def _pump(machine: Machine, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes to the port inside and back."""
    try:
        theirs, to_them = await machine.started.open_port(port)
    except (OSError, GuestGone):
        writer.transport.abort()
        return
    await asyncio.gather(_copy(reader, to_them), _copy(theirs, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _http(session: ClientSession, request: web.Request, target: str) -> web.StreamResponse:
    headers = _passed_on(request)
    body = request.content.iter_any() if request.body_exists else None
    async with session.request(request.method, target, headers=headers, data=body, allow_redirects=False) as answer:
        kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        for name, value in kept:
            response.headers.add(name, value)
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


async def _websocket(session: ClientSession, request: web.Request, target: str) -> web.StreamResponse:
    headers = {name: value for name, value in _passed_on(request).items() if not name.lower().startswith("sec-")}
    async with session.ws_connect(target, headers=headers, max_msg_size=MESSAGE_CAP) as theirs:
        ours = web.WebSocketResponse(max_msg_size=MESSAGE_CAP)
        await ours.prepare(request)
        await _first(_relay(ours, theirs), _relay(theirs, ours))
        await ours.close()
        return ours


async def _first(*works: Awaitable[None]) -> None:
    """Until one of them ends."""
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _relay(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    sink: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> None:
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await sink.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await sink.send_bytes(message.data)


def _passed_on(request: web.Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
