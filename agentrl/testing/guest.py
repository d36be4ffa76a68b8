"""A private machine on this host for loopback provider servers: commands really run, files are really there.

A :class:`Guest` has mount, pid, ipc and network namespaces of its own (bubblewrap 0.11), sees ``/usr`` and the like of the host under
copy-on-write overlays, and has its own ``/tmp``, ``/home`` and ``/root``. Its first process starts others for us and opens
connections to its ports. It is made for tests, and is no wall against code that wants out::

    host = Host(folder)
    guest = await host.start()
    process = await guest.spawn(["sh", "-c", "echo $0; cat", "hello"], stdin=True)
    process.stdin.write(b"world"); process.stdin.close()
    assert await process.stdout.read() == b"hello\\nworld" and await process.wait() == 0
    await guest.write("/tmp/x", b"1"); assert await guest.read("/tmp/x") == b"1"
    reader, writer = await guest.open_port(8080)
    layers = await guest.snapshot(folder / "built")
    await guest.destroy()
    other = await host.start(layers=layers)       # has /tmp/x
    await host.aclose()

Everything belongs to the event loop that called :meth:`Host.start`. Not here: any provider's API.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.errors import SandboxTransient
from agentrl.testing.guest_channel import Channel, GuestGone, Process
from agentrl.testing.guest_view import (
    Folders,
    bwrap_argv,
    copy_tree,
    make_folders,
    remove_tree,
    search_path,
    survey,
    two_users,
)

BOOT_SEC = 120.0
END_SEC = 5.0
_BOOTS_AT_ONCE = 8

__all__ = ["Entry", "Guest", "GuestGone", "Host", "Process"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link inside, as lstat(2) tells it. ``target``: of a link, else empty; ``beyond``: the mode of what a link
    leads to (0: nothing), else ``mode``."""

    path: str
    mode: int
    size: int
    uid: int
    gid: int
    mtime: float
    target: str = ""
    beyond: int = 0


class Guest:
    """A running machine. Made by :meth:`Host.start`."""

    def __init__(
        self, state: Path, layers: Sequence[Path], process: subprocess.Popen[bytes], sock: socket.socket
    ) -> None:
        self.id, self.state, self.layers = state.name, state, tuple(layers)
        self.ended = asyncio.Event()
        self.destroyed = False
        self._removal: asyncio.Future[None] | None = None
        self.two_users = two_users()
        self.pid = process.pid
        self._process, self._channel = process, Channel(self.id, sock)
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    # ------------------------------------------------------------------------------------------------ processes

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        user: str = "root",
        stdin: bool = False,
    ) -> Process:
        """Start ``argv`` with exactly ``env``; without ``stdin`` it reads from ``/dev/null``.

        ``user``: ``root``, ``user`` (1000) or who else is in ``/etc/passwd``; where :attr:`two_users` does not hold, nobody but
        root. Raises: OSError as chdir(2) and execve(2) do, GuestGone.
        """
        body = {"do": "spawn", "argv": list(argv), "env": dict(env or {}), "cwd": cwd}
        return await self._start(body, user=user, stdin=stdin)

    async def _start(self, body: Mapping[str, Any], *, user: str, stdin: bool) -> Process:
        return await self._channel.start({**body, "user": user if self.two_users else "root"}, stdin=stdin)

    # ---------------------------------------------------------------------------------------------------- files

    async def read(self, path: str, *, user: str = "root") -> bytes:
        """A regular file, whole. Raises: OSError, GuestGone."""
        return await self._file("read", path, user=user)

    async def write(
        self, path: str, data: bytes, *, mode: int = 0o644, user: str = "root", owner: int | None = None
    ) -> None:
        """Write a file and the folders above it. ``mode``: of a new one; ``owner``: of what is new. Raises: OSError, GuestGone."""
        await self._file("write", path, mode, self._owner(owner), user=user, data=data)

    async def stat(self, path: str, *, user: str = "root") -> Entry:
        """One entry, links not followed. Raises: OSError, GuestGone."""
        return Entry(**json.loads(await self._file("stat", path, user=user)))

    async def list(self, path: str, *, depth: int = 1, user: str = "root") -> list[Entry]:
        """What is below a folder, ``depth`` levels deep. Raises: OSError, GuestGone."""
        return [Entry(**row) for row in json.loads(await self._file("list", path, depth, user=user))]

    async def make_folder(self, path: str, *, mode: int = 0o755, user: str = "root", owner: int | None = None) -> None:
        """A folder, with those above it. Raises: OSError (FileExistsError too), GuestGone."""
        await self._file("make", path, mode, self._owner(owner), user=user)

    async def remove(self, path: str, *, user: str = "root") -> None:
        """A file, or a folder with all that is in it. Raises: OSError, GuestGone."""
        await self._file("remove", path, user=user)

    async def move(self, source: str, target: str, *, user: str = "root") -> None:
        """Rename, making the folders above ``target``. Raises: OSError, GuestGone."""
        await self._file("move", source, target, user=user)

    async def chmod(self, path: str, mode: int, *, user: str = "root") -> None:
        """Change a mode. Raises: OSError, GuestGone."""
        await self._file("chmod", path, mode, user=user)

    def _owner(self, owner: int | None) -> int | None:
        return owner if self.two_users else None

    async def _file(self, operation: str, *arguments: object, user: str, data: bytes | None = None) -> bytes:
        body = {"do": "file", "operation": operation, "arguments": arguments}
        process = await self._start(body, user=user, stdin=data is not None)
        try:
            if process.stdin is not None:
                with suppress(ConnectionError):  # it ended without reading: its exit code says why
                    process.stdin.write(data or b"")
                    await process.stdin.drain()
                process.stdin.close()
            code, out, err = await process.output()
        finally:
            process.close()
        if code:
            raise OSError(code if code > 0 else errno.EIO, err.decode(errors="replace"), arguments[0])
        return out

    # ---------------------------------------------------------------------------------------------------- ports

    async def open_port(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to TCP ``port`` on the guest's own loopback. Raises: OSError (nobody listens), GuestGone."""
        return await asyncio.open_connection(sock=await self._channel.connect(port))

    # --------------------------------------------------------------------------------------------------- its life

    async def snapshot(self, target: Path) -> tuple[Path, ...]:
        """Copy what it has written to the new folder ``target``; the layers for :meth:`Host.start`. Raises: OSError."""
        await asyncio.to_thread(copy_tree, self.state, target)
        return (*self.layers, target)

    async def destroy(self) -> None:
        """End every process inside and remove its files. Idempotent."""
        self.hang_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SEC):
                await self.ended.wait()
        if not self.ended.is_set():
            self._process.kill()
            await self.ended.wait()
        if self._removal is None:  # once, whoever else asks for it and whoever is cancelled
            self._removal = asyncio.ensure_future(asyncio.to_thread(remove_tree, self.state))
        await asyncio.shield(self._removal)
        self.destroyed = True

    def hang_up(self) -> None:
        """Let it die at once; :meth:`destroy` removes its files. Idempotent."""
        self._channel.close()

    async def answers(self) -> None:
        """Wait until it has booted. Raises: GuestGone."""
        await asyncio.shield(self._channel.ready)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self.hang_up()
        self.ended.set()


class Host:
    """Where guests come from. ``folder``: for their files, on a disk file system; created if missing. ``path``: a PATH for commands."""

    def __init__(self, folder: Path) -> None:
        self.path = search_path()
        self._folder = folder
        self._guests: set[Guest] = set()
        self._survey: asyncio.Task[Folders] | None = None
        self._booting = asyncio.Semaphore(_BOOTS_AT_ONCE)

    async def start(self, *, layers: Sequence[Path] = (), cpus: int = 0, memory_mb: int = 0) -> Guest:
        """Boot one. ``layers``: what :meth:`Guest.snapshot` returned; ``cpus``: how many it has, ``memory_mb``: how much each of
        its processes may have, 0: as the host. Raises: SandboxRefused (cannot work here), SandboxTransient."""
        state = self._folder / f"guest-{secrets.token_hex(8)}"
        folders = await self._folders()
        async with self._booting:
            self._guests = {guest for guest in self._guests if not guest.destroyed}
            make_folders(state, folders, fresh=not layers)
            guest = _boot(state, folders, layers, (str(cpus), str(memory_mb)))
            self._guests.add(guest)
            try:
                async with asyncio.timeout(BOOT_SEC):
                    await guest.answers()
            except (TimeoutError, GuestGone, asyncio.CancelledError) as error:
                said = (state / "log").read_text(errors="replace")
                await asyncio.shield(guest.destroy())
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise SandboxTransient(f"the guest did not start: {said}") from None
        return guest

    async def aclose(self) -> None:
        """Destroy all guests, and remove what belonged to them together."""
        await asyncio.gather(*(guest.destroy() for guest in self._guests))
        if self._survey is not None:
            await asyncio.gather(self._survey, return_exceptions=True)
        await asyncio.to_thread(remove_tree, self._folder)

    async def _folders(self) -> Folders:
        if self._survey is None:
            self._survey = asyncio.create_task(asyncio.to_thread(survey, self._folder / "host"))
        return await asyncio.shield(self._survey)


def _boot(state: Path, folders: Folders, layers: Sequence[Path], limits: Sequence[str]) -> Guest:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, (state / "log").open("wb") as log:
        process = subprocess.Popen(
            bwrap_argv(state, folders, layers, (str(theirs.fileno()), *limits)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={},
            cwd=state,
            pass_fds=[theirs.fileno()],
        )
    ours.setblocking(False)
    return Guest(state, layers, process, ours)
