"""Starting the process of a sandbox and waiting until its exec server is ready; ending it whatever happens in between."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentrl.api import CarriedPort, SandboxTransient
from agentrl_local.channel import Channel
from agentrl_local.confine import JOIN, SOCKET, explain
from agentrl_local.records import destroy

BOOT_SEC = 60.0
HANG_UP_SEC = 10.0
LOG = "boot.log"
_MAX_FDS = 200


class Boot:
    """A started sandbox process with what belongs to it."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, state: Path) -> None:
        self.process, self.sock, self.state = process, sock, state
        self.carried: list[CarriedPort] = []
        self.channel: Channel | None = None
        self.ended = asyncio.Event()
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.process.wait()
        for port in self.carried:
            port.close()
        self.ended.set()

    def kill(self) -> None:
        """The kernel ends everything inside with it."""
        if not self.ended.is_set():
            self.process.send_signal(signal.SIGKILL)

    async def connect(self, ports: Sequence[int]) -> Channel:
        """Wait for the exec server, and carry its listeners to ``ports`` of the host. Raises: SandboxRefused, SandboxTransient."""
        said, fds = await self._first_words()
        listeners = [socket.socket(fileno=fd) for fd in fds]
        for port, listener in zip(ports, listeners, strict=True) if said == b"ready" else ():
            self.carried.append(CarriedPort(port))
            await self.carried[-1].start(listener)
        if said != b"ready":
            log = (self.state / LOG).read_text(errors="replace")
            raise explain(said.decode(errors="replace") + log)
        self.channel = await Channel.open(self.sock)
        return self.channel

    async def _first_words(self) -> tuple[bytes, list[int]]:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self.sock, readable.set)
        try:
            async with asyncio.timeout(BOOT_SEC):
                await readable.wait()
        except TimeoutError:
            raise SandboxTransient(f"the sandbox was not ready after {BOOT_SEC:.0f} s") from None
        finally:
            loop.remove_reader(self.sock)
        try:
            said, fds, _, _ = socket.recv_fds(self.sock, 4096, _MAX_FDS)
        except OSError:
            return b"", []
        return said, fds

    async def discard(self) -> None:
        """End it and remove every trace. Hanging up is enough for what boots; a kill halfway would leave stragglers."""
        if self.channel is None:
            self.sock.close()
        else:
            self.channel.close("the sandbox did not start")
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_UP_SEC):
                await self.ended.wait()
        self.kill()
        await self.ended.wait()
        await asyncio.to_thread(destroy, self.state)


def start(argv: Sequence[str], *, groups: Sequence[Path], state: Path, cwd: Path) -> Boot:
    """Start ``argv``, SOCKET in it being the number of its socket's descriptor, in the control groups ``groups``. Raises: OSError.

    bubblewrap dies with the thread that started it: call this from one that lives as long as the sandbox shall.
    """
    ours, theirs = socket.socketpair()
    joined = ["/bin/sh", "-c", JOIN, "sh", *(str(group / "cgroup.procs") for group in groups), "--"] if groups else []
    try:
        with theirs, (state / LOG).open("wb") as log:
            process = subprocess.Popen(
                [*joined, *(str(theirs.fileno()) if part == SOCKET else part for part in argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
                cwd=cwd,
                pass_fds=[theirs.fileno()],
            )
    except OSError:
        ours.close()
        raise
    ours.setblocking(False)
    return Boot(process, ours, state)
