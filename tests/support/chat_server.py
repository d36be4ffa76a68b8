"""A scripted model behind the Chat Completions API, for harnesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

Reply = str | dict[str, Any]


class ChatServer:
    """Answers with ``replies`` in order: a text, or a dict with ``content`` and ``finish_reason``, or with ``status`` and
    ``code`` (and ``param``) for an error, or what a function makes of the request, again and again until that is None.
    ``requests`` are the bodies that came."""

    def __init__(self, replies: Sequence[Reply | Callable[[dict[str, Any]], Reply | None]]) -> None:
        self._replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str] = []

    async def __aenter__(self) -> ChatServer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._server = TestServer(app)
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    def _next(self, request: dict[str, Any]) -> Reply:
        while callable(self._replies[0]):
            if (reply := self._replies[0](request)) is not None:
                return reply
            self._replies.pop(0)
        return self._replies.pop(0)

    async def _answer(self, http: web.Request) -> web.Response:
        self.requests.append(await http.json())
        self.authorizations.append(http.headers.get("Authorization", ""))
        reply = self._next(self.requests[-1])
        row = {"content": reply} if isinstance(reply, str) else reply
        if "status" in row:
            error = {"message": "refused", "code": row.get("code"), "param": row.get("param")}
            return web.json_response({"error": error}, status=row["status"])
        message = {"role": "assistant", "content": row["content"]}
        choice = {"index": 0, "message": message, "finish_reason": row.get("finish_reason", "stop")}
        return web.json_response({"id": "x", "object": "chat.completion", "choices": [choice]})
