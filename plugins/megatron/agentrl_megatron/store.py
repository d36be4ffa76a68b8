"""Rendezvous stores on ports that the kernel chooses: bound before anybody is told, so no two runs can collide."""

from __future__ import annotations

import socket
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore


def listen(host: str, world_size: int, timeout: timedelta) -> tuple[TCPStore, int]:
    """A store that listens on ``host`` only, and its port. It does not wait for anybody."""
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port = listener.getsockname()[1]
    store = TCPStore(
        host,
        port,
        world_size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port


def connect(host: str, port: int, world_size: int, timeout: timedelta) -> TCPStore:
    """The store that another process listens with."""
    return TCPStore(host, port, world_size, is_master=False, timeout=timeout, wait_for_workers=False)
