"""An engine that costs next to nothing: SGLang's ``/generate`` with answers made ahead, over a bare asyncio protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from multiprocessing.connection import Connection

import orjson

_INFO = orjson.dumps({"model_path": "bench", "weight_version": "1"})


class QuickEngine(asyncio.Protocol):
    """One connection. It answers as soon as a request is complete and looks at no more of it than the path."""

    def __init__(self, answers: Sequence[bytes], counts: list[int]) -> None:
        self._answers, self._counts = answers, counts
        self._buffer = bytearray()
        self._need = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._complete():
            path = bytes(self._buffer[: self._buffer.index(b"\r\n")]).split(b" ")[1]
            del self._buffer[: self._need]
            self._need = -1
            self._transport.write(self._answer(path))  # type: ignore[attr-defined]

    def _complete(self) -> bool:
        if self._need < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return False
            head = bytes(self._buffer[:end]).lower()
            length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
            self._need = end + 4 + int(length or 0)
        return len(self._buffer) >= self._need

    def _answer(self, path: bytes) -> bytes:
        if path != b"/generate":
            return _http(_INFO)
        self._counts[0] += 1
        return self._answers[self._counts[0] % len(self._answers)]


def serve(replies: Sequence[Sequence[int]], pipe: Connection) -> None:
    """Serve until the pipe closes: says its port first, answers every message with the number of generations."""
    asyncio.run(_serve(replies, pipe))


async def _serve(replies: Sequence[Sequence[int]], pipe: Connection) -> None:
    counts = [0]
    answers = [_http(_generation(ids)) for ids in replies]
    server = await asyncio.get_running_loop().create_server(lambda: QuickEngine(answers, counts), "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    while await asyncio.to_thread(pipe.recv) != "end":
        pipe.send(counts[0])


def _generation(ids: Sequence[int]) -> bytes:
    meta = {
        "finish_reason": {"type": "stop", "matched": ids[-1]},
        "weight_version": "1",
        "output_token_logprobs": [[-0.5 - 1 / (i + 1), i, None] for i in ids],
    }
    return orjson.dumps({"text": "", "output_ids": list(ids), "meta_info": meta})


def _http(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
