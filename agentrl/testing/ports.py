"""Ports of this host's loopback that stay ours while nobody listens there."""

from __future__ import annotations

import socket


def bound(port: int = 0) -> socket.socket:
    """A socket at ``port``, 0: a free one. Further ones may be bound there and one of them may listen; as long as any of them is
    open the system gives the port to nobody else. Raises: OSError."""
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock
