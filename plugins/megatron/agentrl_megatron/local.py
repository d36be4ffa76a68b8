"""Ranks as processes of this machine. Another placement offers the same two things: a :class:`Link`, and a way to start one."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentrl.api import Leashed, environment, start_leashed
from agentrl_megatron.settings import MegatronSettings
from agentrl_megatron.wire import Message, encode, receive

# All that a rank inherits, by prefix: where things are, and how its GPUs and networks are to be used; nobody's keys.
_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "CUDA_",
    "NCCL_",
    "GLOO_",
    "TORCH_",
    "OMP_",
)


class Link(Protocol):
    """The driver's end of one rank."""

    async def send(self, message: Message) -> None:
        """Give a command. Raises: ConnectionError when the rank is gone."""
        ...

    async def receive(self) -> Message:
        """The reply. Raises: EOFError or ConnectionError when the rank is gone."""
        ...

    async def stop(self) -> None:
        """End the rank's process; idempotent."""
        ...

    def log_tail(self) -> str:
        """The last lines that the rank wrote."""
        ...


class Launch(Protocol):
    """Starts rank number ``rank`` of ``world``; it dies with this process, however this process dies."""

    async def __call__(self, rank: int, world: int, settings: MegatronSettings, log_dir: Path) -> Link:
        """Returns as soon as the process runs."""
        ...


@dataclass(slots=True)
class LocalLink:
    """A rank on this machine, reached over a socket pair that nobody else holds."""

    program: Leashed
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, message: Message) -> None:
        """Give a command."""
        self.writer.write(await asyncio.to_thread(encode, message))
        await self.writer.drain()

    async def receive(self) -> Message:
        """The reply."""
        return await receive(self.reader)

    async def stop(self) -> None:
        """Hang up and end the process."""
        self.writer.close()
        await self.program.stop()

    def log_tail(self) -> str:
        """The last lines of its log."""
        return self.program.log_tail()


async def launch_local(rank: int, world: int, settings: MegatronSettings, log_dir: Path) -> Link:
    """Start a rank here."""
    ours, theirs = socket.socketpair()
    with theirs:
        program = await start_leashed(
            [sys.executable, "-m", "agentrl_megatron.rank", str(theirs.fileno())],
            env=_environment(world, settings),
            log_path=log_dir / f"trainer-rank-{rank}.log",
            pass_fds=[theirs.fileno()],
        )
    reader, writer = await asyncio.open_connection(sock=ours)
    return LocalLink(program, reader, writer)


def _environment(world: int, settings: MegatronSettings) -> dict[str, str]:
    threads = settings.threads or max(1, len(os.sched_getaffinity(0)) // world)
    return {
        **{name: value for name, value in environment().items() if name.startswith(_INHERITED)},
        # Otherwise gloo listens on whatever address the machine's name resolves to, if it resolves.
        **({"GLOO_SOCKET_IFNAME": "lo"} if settings.host == "127.0.0.1" else {}),
        "OMP_NUM_THREADS": str(threads),
        # Threads that wait for each other sleep instead of spinning: the engine shares these cores.
        "OMP_WAIT_POLICY": "passive",
        # Megatron-core asks for it to keep communication and computation in order.
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
