"""The serving end of a WebSocket (RFC 6455), as much of it as the relay's host needs: binary messages, pings, a close.

Not here: what the messages mean (:mod:`agentrl.relay.inside.program`).
"""

import asyncio
import base64
import hashlib
import struct

from .pipe import LARGEST, Violation

MAX_MESSAGE = LARGEST + 1024
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class WebSocket:
    """An open one. One reader at a time; messages are sent whole."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._turn = asyncio.Lock()  # old Pythons let only one wait until a transport has room

    async def receive(self) -> "bytes | None":
        """The next binary message; None: the host hung up. Raises: Violation, OSError, IncompleteReadError."""
        message = b""
        while True:
            final, opcode, data = await self._frame()
            if opcode == _CLOSE:
                await self._send(_CLOSE, data[:2])
                return None
            if opcode == _PING:
                await self._send(_PONG, data)
            elif opcode in (_CONTINUED, _BINARY):
                message += data
                if len(message) > MAX_MESSAGE:
                    raise Violation("a message that is too long")
                if final:
                    return message
            elif opcode != _PONG:
                raise Violation("a frame of a kind that is not spoken here")

    async def send(self, message: bytes) -> None:
        """Send a binary message. Raises: OSError."""
        await self._send(_BINARY, message)

    async def _frame(self) -> "tuple[bool, int, bytes]":
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size >= 126:
            form = "!H" if size == 126 else "!Q"
            (size,) = struct.unpack(form, await self._reader.readexactly(struct.calcsize(form)))
        if size > MAX_MESSAGE or not second & 0x80:
            raise Violation("a frame that is too long or not masked")
        mask = await self._reader.readexactly(4)
        return bool(first & 0x80), first & 0x0F, _unmasked(await self._reader.readexactly(size), mask)

    async def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 127, size)
        async with self._turn:
            self._writer.write(head + data)
            await self._writer.drain()


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> WebSocket:
    """Answer the request that opens a WebSocket. Raises: Violation, OSError, IncompleteReadError, LimitOverrunError."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    fields = {name.strip().lower(): value.strip() for name, _, value in lines}
    key = fields.get(b"sec-websocket-key")
    if not key or fields.get(b"upgrade", b"").lower() != b"websocket":
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        raise Violation("a request that opens no WebSocket")
    proof = base64.b64encode(hashlib.sha1(key + _GUID).digest())
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n"
    )
    await writer.drain()
    return WebSocket(reader, writer)


def _unmasked(data: bytes, mask: bytes) -> bytes:
    """``data`` xor the repeated ``mask``, as one big number."""
    size = len(data)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
