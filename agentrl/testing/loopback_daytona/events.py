"""Socket.IO of the loopback provider, as much as the SDK's listener needs: a websocket that hears of changed states.

Without it the SDK asks every second instead. Text frames are ``4`` (Engine.IO message) and a Socket.IO packet: ``0`` for
a connection, ``2`` for an event.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from aiohttp import WSMsgType, web

PING_SEC = 20.0


class Events:
    """Whoever listens hears everything: an account of this server is one organisation."""

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key
        self._listeners: dict[web.WebSocketResponse, asyncio.Queue[str]] = {}

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """One listener, to its end."""
        listener = web.WebSocketResponse()
        await listener.prepare(request)
        about = {
            "sid": secrets.token_hex(8),
            "upgrades": [],
            "pingInterval": int(PING_SEC * 1000),
            "pingTimeout": 20000,
            "maxPayload": 1 << 20,
        }
        await listener.send_str("0" + json.dumps(about))
        queue = self._listeners[listener] = asyncio.Queue()
        sending = asyncio.create_task(_send(listener, queue))
        try:
            async for message in listener:
                if message.type is WSMsgType.TEXT and message.data.startswith("40"):
                    queue.put_nowait(self._welcome(message.data[2:]))
        finally:
            del self._listeners[listener]
            sending.cancel()
        return listener

    def tell(self, event: str, data: dict[str, Any]) -> None:
        """Let every listener know."""
        for queue in self._listeners.values():
            queue.put_nowait("42" + json.dumps([event, data]))

    async def aclose(self) -> None:
        """Send them away."""
        for listener in list(self._listeners):
            await listener.close()

    def _welcome(self, auth: str) -> str:
        if json.loads(auth or "{}").get("token") == self._api_key:
            return "40" + json.dumps({"sid": secrets.token_hex(8)})
        return "44" + json.dumps({"message": "unauthorized"})


async def _send(listener: web.WebSocketResponse, queue: asyncio.Queue[str]) -> None:
    while True:
        try:
            async with asyncio.timeout(PING_SEC):
                text = await queue.get()
        except TimeoutError:
            text = "2"
        await listener.send_str(text)
