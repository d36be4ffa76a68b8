"""A model behind the OpenAI and Anthropic APIs, as strict about requests as those are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


class UpstreamServer:
    """Answers with ``replies`` in turn and then with the last one for ever: a text, a dict of a tool call ``{"name", "input"}``,
    or a number, which is the HTTP status of a refusal. ``requests``: (headers, body) of what came."""

    def __init__(self, replies: Sequence[str | dict[str, Any] | int]) -> None:
        self._replies = list(replies)
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []

    async def __aenter__(self) -> UpstreamServer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/messages", self._anthropic)
        self._server = TestServer(app)
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    async def _next(self, http: web.Request) -> str | dict[str, Any] | int:
        self.requests.append((dict(http.headers), await http.json()))
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    async def _openai(self, http: web.Request) -> web.Response:
        said = await self._next(http)
        if isinstance(said, int):
            return web.json_response(
                {"error": {"message": "no", "code": "context_length_exceeded" if said == 400 else None}}, status=said
            )
        message: dict[str, Any] = {"role": "assistant", "content": said}
        if isinstance(said, dict):
            call = {"name": said["name"], "arguments": '{"command": "ls"}'}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            }
        finish = "tool_calls" if isinstance(said, dict) else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 7}})

    async def _anthropic(self, http: web.Request) -> web.Response:
        said = await self._next(http)
        if isinstance(said, int):
            return web.json_response({"type": "error", "error": {"message": "prompt is too long"}}, status=said)
        block = {"type": "text", "text": said}
        if isinstance(said, dict):
            block = {"type": "tool_use", "id": "c1", "name": said["name"], "input": said["input"]}
        roles = [message["role"] for message in self.requests[-1][1]["messages"]]
        if any(one == other for one, other in pairwise(roles)):
            return web.json_response({"type": "error", "error": {"message": "roles must alternate"}}, status=400)
        reason = "tool_use" if isinstance(said, dict) else "end_turn"
        usage = {"input_tokens": 5, "cache_read_input_tokens": 6, "output_tokens": 7}
        return web.json_response({"content": [block], "stop_reason": reason, "usage": usage})
