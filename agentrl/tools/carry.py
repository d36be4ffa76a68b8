"""Carries connections made inside a sandbox to a port of the host's loopback, and to nothing else.

For backends that can put a listening socket into a sandbox's network and serve it from outside.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

CHUNK = 64 << 10


class CarriedPort:
    """One listening socket of a sandbox, served by the host: what connects there speaks with ``127.0.0.1:port`` here."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, listener: socket.socket) -> None:
        """Serve ``listener``, which lives in the sandbox's network namespace."""
        self._server = await asyncio.start_server(self._carry, sock=listener, start_serving=False)
        await self._server.start_serving()  # whoever is cancelled in here can close it

    def close(self) -> None:
        """Stop listening and cut what is open."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            self._drop(writer)
            return
        self._writers.add(up_writer)
        try:
            await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        finally:
            self._drop(writer)
            self._drop(up_writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, then pass the end on; a cut connection on either side ends both."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        with suppress(OSError):
            writer.transport.abort()
