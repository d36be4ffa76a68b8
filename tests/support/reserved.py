"""A port that a test may name before anybody listens on it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Of 127.0.0.1, and for the block: the kernel gives it to nobody who asks for any port, and refuses connections. Servers, which
    bind with SO_REUSEADDR, can listen on it all the same."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
