"""Agents that cost next to nothing: streamed Anthropic Messages over bare sockets, histories that grow by appending bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from multiprocessing.connection import Connection

import orjson

_TOOLS = [
    {
        "name": name,
        "description": f"{name} in the workspace",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    }
    for name in ("Bash", "Read", "Edit", "Write", "Glob", "Grep")
]


def drive(opening: str, results: Sequence[str], pipe: Connection) -> None:
    """For each ``(gateway port, session paths, turns)`` that comes through the pipe, play all sessions at once and send
    back the seconds of each turn, session by session."""
    while (order := pipe.recv()) != "end":
        pipe.send(asyncio.run(_play_all(opening, results, *order)))


def watch(pipe: Connection) -> None:
    """For each gateway port that comes through the pipe, ask for ``/health`` ten times a second until the next word comes,
    and send back the seconds of each answer. In a process of its own: whoever plays sessions is too busy to judge."""
    while (port := pipe.recv()) != "end":
        connection, seconds = HTTPConnection("127.0.0.1", port), []
        while not pipe.poll(0.1):
            start = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            seconds.append(time.perf_counter() - start)
        pipe.recv()
        pipe.send(seconds)


async def _play_all(
    opening: str, results: Sequence[str], port: int, paths: Sequence[str], turns: int
) -> list[list[float]]:
    tasks = [_play(opening, results, port, path, turns, number) for number, path in enumerate(paths)]
    return await asyncio.gather(*tasks)


async def _play(opening: str, results: Sequence[str], port: int, path: str, turns: int, number: int) -> list[float]:
    head, tail = _frame(opening)
    history = bytearray(orjson.dumps({"role": "user", "content": f"Repair defect {number}."}))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    seconds = []
    for turn in range(turns):
        body = b"".join((head, history, tail))
        request = f"POST {path}/v1/messages HTTP/1.1\r\nHost: x\r\nUser-Agent: claude-cli/2\r\nContent-Length: {len(body)}\r\n\r\n"
        start = time.perf_counter()
        writer.write(request.encode() + body)
        events = await _stream(reader)
        seconds.append(time.perf_counter() - start)
        content = _content(events)
        call = next(block["id"] for block in content if block["type"] == "tool_use")
        result = results[(number * 7 + turn) % len(results)]
        answer = {"type": "tool_result", "tool_use_id": call, "content": f"{turn}\n{result}"}
        for message in ({"role": "assistant", "content": content}, {"role": "user", "content": [answer]}):
            history += b"," + orjson.dumps(message)
    writer.close()
    return seconds


def _frame(opening: str) -> tuple[bytes, bytes]:
    rest = orjson.dumps(
        {"system": [{"type": "text", "text": opening}], "tools": _TOOLS, "max_tokens": 4096, "stream": True}
    )
    return b'{"model":"bench","messages":[', b"]," + rest[1:]


async def _stream(reader: asyncio.StreamReader) -> bytes:
    """A whole reply, in pieces or in one."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in head:
        raise RuntimeError(f"{head!r} {await reader.read(2000)!r}")
    if length := head.partition(b"content-length:")[2].split(b"\r\n")[0]:
        return await reader.readexactly(int(length))
    whole = bytearray()
    while size := int(await reader.readline(), 16):
        whole += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return bytes(whole)


def _content(events: bytes) -> list[dict[str, object]]:
    """The blocks of a streamed reply, as a client would echo them."""
    blocks: list[dict[str, object]] = []
    for event in events.split(b"\n\n"):
        data = event.partition(b"\ndata: ")[2]
        if b'"content_block' not in data[:40]:
            continue
        found = orjson.loads(data)
        delta = found.get("delta", {})
        if found["type"] == "content_block_start":
            blocks.append(found["content_block"])
        elif delta.get("type") == "text_delta":
            blocks[-1]["text"] += delta["text"]
        elif delta.get("type") == "input_json_delta":
            blocks[-1]["input"] = orjson.loads(delta["partial_json"])
    return blocks
