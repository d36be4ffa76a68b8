"""Messages between the driver and its ranks: a length, a JSON head, raw arrays. Nothing received is ever executed."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LENGTHS = struct.Struct("!QQ")
_DTYPES = frozenset({"int64", "float32"})

Array = NDArray[np.int64] | NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Message:
    """A command (``op`` and its arguments) or a reply (``op`` is ``ok`` or ``error``). ``fields`` are JSON values."""

    op: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)


def encode(message: Message) -> bytes:
    """One frame. Raises: ValueError for an array that is neither int64 nor float32."""
    layout, parts = [], []
    for name, array in message.arrays.items():
        layout.append([name, _dtype(array.dtype.name), list(array.shape)])
        parts.append(np.ascontiguousarray(array).tobytes())
    head = json.dumps({"op": message.op, "fields": dict(message.fields), "arrays": layout}).encode()
    body = b"".join(parts)
    return _LENGTHS.pack(len(head), len(body)) + head + body


def decode(head: bytes, body: bytes | bytearray) -> Message:
    """The message of a frame; its arrays are views of ``body``. Raises: ValueError when they do not fit it."""
    data = json.loads(head)
    arrays: dict[str, Array] = {}
    offset = 0
    for name, dtype, shape in data["arrays"]:
        count = int(np.prod(shape))
        array = np.frombuffer(body, np.dtype(_dtype(dtype)), count, offset)
        arrays[name] = array.reshape(shape)
        offset += array.nbytes
    return Message(data["op"], data["fields"], arrays)


def _dtype(name: str) -> str:
    if name not in _DTYPES:
        raise ValueError(f"arrays are int64 or float32 here, not {name}")
    return name


async def receive(reader: asyncio.StreamReader) -> Message:
    """The next message. Raises: asyncio.IncompleteReadError when the other side is gone."""
    head, body = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    return decode(await reader.readexactly(head), await reader.readexactly(body))


def receive_blocking(connection: socket.socket) -> Message:
    """The next message; its arrays can be written to. Raises: EOFError when the other side is gone."""
    head, body = _LENGTHS.unpack(_read(connection, _LENGTHS.size))
    return decode(bytes(_read(connection, head)), _read(connection, body))


def _read(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError("the driver is gone")
        view = view[count:]
    return data
