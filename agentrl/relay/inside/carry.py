"""A TCP connection carried over a stream: what happens to it at one end happens to it at the other.

Not here: what a connection may say (the host has :mod:`agentrl.relay.gate` for that).
"""

import asyncio

from .streams import CHUNK, Stream, Streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Refused(Exception):
    """A connection says what it may not. ``answer``: what it is told."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        super().__init__("refused")


async def carry(
    streams: Streams,
    stream: Stream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    admit: "Callable[[bytes], bytes]" = bytes,
) -> None:
    """Copy both ways until both have ended; a connection that breaks at one end breaks at the other.

    ``admit`` sees what comes out of the stream before the connection does, and may raise :class:`Refused`.
    """
    out = asyncio.ensure_future(_out(streams, stream, reader))
    back = asyncio.ensure_future(_back(streams, stream, writer, admit))
    try:
        await asyncio.gather(out, back)
    except OSError:
        streams.reset(stream)
        writer.transport.abort()
    except Refused as refusal:
        out.cancel()
        await streams.send(stream, refusal.answer)
        streams.end(stream)
    finally:
        out.cancel()
        back.cancel()
        streams.forget(stream)
        writer.close()


async def _out(streams: Streams, stream: Stream, reader: asyncio.StreamReader) -> None:
    while True:
        data = await reader.read(CHUNK)
        if not data:
            break
        await streams.send(stream, data)
    streams.end(stream)


async def _back(
    streams: Streams, stream: Stream, writer: asyncio.StreamWriter, admit: "Callable[[bytes], bytes]"
) -> None:
    while True:
        data = await streams.next(stream)
        if not data:
            break
        writer.write(admit(data))
        await writer.drain()
        streams.consumed(stream, len(data))
    if writer.can_write_eof():
        writer.write_eof()
