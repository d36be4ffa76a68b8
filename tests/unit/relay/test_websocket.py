"""The program's end of a WebSocket against a client's frames, also those that ours never sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import aiohttp
import pytest

from agentrl.relay.inside.pipe import Violation
from agentrl.relay.inside.websocket import MAX_MESSAGE, WebSocket, shake_hands

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
BINARY, CONTINUED, TEXT, PING, PONG, CLOSE = 2, 0, 1, 9, 10, 8


class Served:
    """The serving end of one connection, and what it does with it."""

    def __init__(self) -> None:
        self.port = 0
        self.socket: asyncio.Queue[WebSocket] = asyncio.Queue()
        self.fault: asyncio.Queue[Exception] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Shake hands and leave the rest to the test."""
        self.writers.append(writer)
        try:
            self.socket.put_nowait(await shake_hands(reader, writer))
        except (Violation, EOFError, asyncio.LimitOverrunError) as error:
            self.fault.put_nowait(error)
            writer.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Listening."""
    made = Served()
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    for writer in made.writers:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
async def raw(served) -> AsyncIterator[tuple[WebSocket, Callable[..., None], asyncio.StreamReader]]:
    """The socket, a function that sends it a frame, and what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(HANDSHAKE)
    head = await reader.readuntil(b"\r\n\r\n")
    # The answer that RFC 6455 (section 1.3) gives for this key.
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head

    def send(
        opcode: int, data: bytes, *, final: bool = True, masked: bool = True, mask: bytes = b"\x01\x02\x80\xff"
    ) -> None:
        size = len(data)
        length = (
            bytes([size])
            if size < 126
            else b"\x7e" + struct.pack("!H", size)
            if size < 65536
            else b"\x7f" + struct.pack("!Q", size)
        )
        first = bytes([opcode | (0x80 if final else 0), length[0] | (0x80 if masked else 0)])
        body = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)) if masked else data
        writer.write(first + length[1:] + (mask if masked else b"") + body)

    yield await served.socket.get(), send, reader
    await hang_up(writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """End a connection, whatever the other end did."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 200_001])
async def test_messages_of_every_size_both_ways(served, size):
    message = bytes(i * 7 % 256 for i in range(size))
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://127.0.0.1:{served.port}") as client:
        socket = await served.socket.get()
        await client.send_bytes(message)
        assert await socket.receive() == message
        await socket.send(message)
        assert await client.receive_bytes() == message
        ending = asyncio.create_task(socket.receive())
    assert await ending is None


async def test_a_close_is_answered_and_ends_it(served):
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://127.0.0.1:{served.port}") as client:
        receiving = asyncio.create_task((await served.socket.get()).receive())
        await client.close(code=4001)
        assert await receiving is None
        assert client.close_code == 4001


async def test_pieces_of_a_message_with_a_ping_between_them(raw):
    socket, send, reader = raw
    send(BINARY, b"one ", final=False)
    send(PING, b"there?")
    send(CONTINUED, b"two ", final=False)
    send(PONG, b"")
    send(CONTINUED, b"three")
    assert await socket.receive() == b"one two three"
    assert await reader.readexactly(8) == b"\x8a\x06there?"


@pytest.mark.parametrize("opcode", [TEXT, 3, 11])
async def test_frames_of_other_kinds_are_refused(raw, opcode):
    socket, send, _ = raw
    send(opcode, b"hello")
    with pytest.raises(Violation):
        await socket.receive()


async def test_frames_that_are_not_masked_or_too_long_are_refused(raw):
    socket, send, _ = raw
    send(BINARY, b"hello", masked=False)
    with pytest.raises(Violation):
        await socket.receive()


async def test_a_message_that_grows_too_long_is_refused(raw):
    socket, send, _ = raw
    for _ in range(3):
        send(CONTINUED, bytes(MAX_MESSAGE // 2), final=False)
    with pytest.raises(Violation):
        await socket.receive()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        HANDSHAKE.replace(b"WebSocket\r\n", b"h2c\r\n"),
        HANDSHAKE.replace(b"Sec-WebSocket-Key", b"X-Key"),
    ],
)
async def test_other_requests_are_turned_away(served, request_bytes):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request_bytes)
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    assert isinstance(await served.fault.get(), Violation)
    await hang_up(writer)


async def test_a_head_that_never_ends_is_not_waited_for(served):
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000)
    assert isinstance(await served.fault.get(), asyncio.LimitOverrunError)
    await hang_up(writer)
