"""Connect's streams in JSON: a flag byte, a length, a message; the last frame says how it ended."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from agentrl.testing.loopback_e2b.errors import RpcError

_HEADER = struct.Struct(">BI")
_LAST = 2


def encode(message: Mapping[str, Any], *, last: bool = False) -> bytes:
    """One frame."""
    body = json.dumps(message).encode()
    return _HEADER.pack(_LAST if last else 0, len(body)) + body


def decode(data: bytes) -> list[dict[str, Any]]:
    """The messages of complete frames. Raises: RpcError."""
    messages = []
    while data:
        if len(data) < _HEADER.size:
            raise RpcError("invalid_argument", "a frame is cut off")
        flag, size = _HEADER.unpack_from(data)
        if not flag & _LAST:
            messages.append(json.loads(data[_HEADER.size : _HEADER.size + size]))
        data = data[_HEADER.size + size :]
    return messages


class Stream:
    """One answer in parts."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self._response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})

    async def open(self) -> None:
        """Send the headers."""
        await self._response.prepare(self.request)

    async def send(self, message: Mapping[str, Any]) -> None:
        """One message. Raises: ConnectionError when nobody listens any more."""
        await self._response.write(encode(message))

    async def close(self, error: RpcError | None = None) -> web.StreamResponse:
        """The last frame."""
        if not self._response.prepared:
            await self.open()
        await self._response.write(encode({"error": error.body()} if error else {}, last=True))
        await self._response.write_eof()
        return self._response

    @property
    def response(self) -> web.StreamResponse:
        """What a handler returns when it has sent all by itself."""
        return self._response
