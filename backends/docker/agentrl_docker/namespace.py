"""Listening inside a container's network, from outside: a socket belongs to the network it was made in, whoever serves it.

For processes that may enter namespaces of this machine (root). Linux only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from agentrl.api import SandboxRefused

_CLONE_NEWNET = 0x40000000
_CAP_SYS_ADMIN = 1 << 21
BACKLOG = 128


def may_enter() -> bool:
    """Whether this process has the capability that entering takes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    held = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) & _CAP_SYS_ADMIN)


def listen_inside(pid: int, container: str, ports: Sequence[int]) -> list[socket.socket]:
    """Listening sockets at 127.0.0.1 in the network of process ``pid``, one for each of ``ports``; takes about a millisecond.

    ``container``: its full id, which must be in the control group of ``pid``: the engine may count processes differently than
    we do, in a virtual machine or another container. Raises: SandboxRefused.
    """
    made: list[socket.socket] = []
    failed: list[OSError | SandboxRefused] = []

    def enter() -> None:
        try:
            with Path(f"/proc/{pid}/ns/net").open("rb") as network:
                if container not in Path(f"/proc/{pid}/cgroup").read_text():
                    raise SandboxRefused(f"process {pid} of the engine is another one here")
                _setns(network.fileno())
            made.extend(_listener(port) for port in ports)
        except (OSError, SandboxRefused) as error:
            failed.append(error)

    # The network is a property of a thread: this one ends with its visit.
    visitor = threading.Thread(target=enter, name=f"agentrl-network-{pid}")
    visitor.start()
    visitor.join()
    if failed:
        for listener in made:
            listener.close()
        raise SandboxRefused(
            f"the network of the container cannot be entered ({failed[0]}): set SWE_DOCKER_NETWORK=bridge"
        ) from failed[0]
    return made


def _setns(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
