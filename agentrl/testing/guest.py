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
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.errors import SandboxTransient
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

BOOT_SEC = 30.0
END_SEC = 5.0
CHUNK = 256 << 10
_BOOTS_AT_ONCE = 8


class GuestGone(Exception):
    """The guest was destroyed, or its first process ended."""


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


class Process:
    """A process inside. ``pid`` is its number inside; it leads a session and a process group of its own.

    ``stdout`` and ``stderr`` end when everyone who holds them has closed them; ``wait`` returns when the process itself has ended.
    """

    def __init__(self, guest: Guest, number: int) -> None:
        loop = asyncio.get_running_loop()
        self._guest, self.number = guest, number
        self.pid = 0
        self.started: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout = asyncio.StreamReader(CHUNK)
        self.stderr = asyncio.StreamReader(CHUNK)
        self._transports: list[asyncio.ReadTransport | asyncio.WriteTransport] = []

    @property
    def returncode(self) -> int | None:
        """The exit code, -n for signal n; None while it runs, or when it went with its guest."""
        return self.exited.result() if self.exited.done() and not self.exited.exception() else None

    async def wait(self) -> int:
        """The exit code, -n for signal n. Raises: GuestGone."""
        return await asyncio.shield(self.exited)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to it alone or to its whole process group; nothing happens when it has ended. Raises: GuestGone."""
        self._guest.request({"do": "signal", "target": self.number, "signal": number, "group": group, "number": 0})

    def close(self) -> None:
        """Let go of its pipes: whoever still writes to them gets SIGPIPE. Idempotent."""
        for transport in self._transports:
            if not transport.is_closing():
                transport.abort() if isinstance(transport, asyncio.WriteTransport) else transport.close()

    async def output(self) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr, when all of them have ended. Raises: GuestGone."""
        try:
            out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
            return await self.wait(), out, err
        finally:
            self.close()

    async def make_pipes(self, *, stdin: bool) -> list[int]:
        """Make the pipes; returns the ends that belong inside, for the caller to close."""
        loop, theirs = asyncio.get_running_loop(), []
        if stdin:
            end, mine = os.pipe()
            theirs.append(end)
            sender, protocol = await loop.connect_write_pipe(
                lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(mine, "wb", 0)
            )
            self.stdin = asyncio.StreamWriter(sender, protocol, None, loop)
            self._transports.append(sender)
        for reader in (self.stdout, self.stderr):
            mine, end = os.pipe()
            theirs.append(end)
            receiver, _ = await loop.connect_read_pipe(
                partial(asyncio.StreamReaderProtocol, reader), os.fdopen(mine, "rb", 0)
            )
            self._transports.append(receiver)
        return theirs


class Guest:
    """A running machine. Made by :meth:`Host.start`."""

    def __init__(
        self, state: Path, layers: Sequence[Path], process: subprocess.Popen[bytes], sock: socket.socket
    ) -> None:
        self.id, self.state, self.layers = state.name, state, tuple(layers)
        self.ended = asyncio.Event()
        self.destroyed = False
        self.two_users = two_users()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pid = process.pid
        self._process, self._sock = process, sock
        self._number = 0
        self._processes: dict[int, Process] = {}
        self._connecting: dict[int, asyncio.Future[socket.socket]] = {}
        self._pidfd = os.pidfd_open(process.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, self._on_end)
        loop.add_reader(sock, self._on_packet)

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
        process = Process(self, self._next())
        self._processes[process.number] = process
        theirs = await process.make_pipes(stdin=stdin)
        try:
            self.request({**body, "user": user if self.two_users else "root", "number": process.number}, theirs)
            await process.started
        except BaseException:
            process.close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return process

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
        if process.stdin is not None:
            with suppress(ConnectionError):  # it ended without reading: its exit code says why
                process.stdin.write(data or b"")
                await process.stdin.drain()
            process.stdin.close()
        code, out, err = await process.output()
        if code:
            raise OSError(code if code > 0 else errno.EIO, err.decode(errors="replace"), arguments[0])
        return out

    # ---------------------------------------------------------------------------------------------------- ports

    async def open_port(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to TCP ``port`` on the guest's own loopback. Raises: OSError (nobody listens), GuestGone."""
        number = self._next()
        future = self._connecting[number] = asyncio.get_running_loop().create_future()
        self.request({"do": "connect", "port": port, "number": number})
        return await asyncio.open_connection(sock=await future)

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
        if not self.destroyed:
            await asyncio.to_thread(remove_tree, self.state)
            self.destroyed = True

    def hang_up(self) -> None:
        """Let it die at once; :meth:`destroy` removes its files. Idempotent."""
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
        gone = GuestGone(f"{self.id} is gone")
        for process in self._processes.values():
            for future in (process.started, process.exited):
                _settle(future, gone)
        for connecting in self._connecting.values():
            _settle(connecting, gone)
        _settle(self.ready, gone)
        self._processes.clear()
        self._connecting.clear()

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self.hang_up()
        self.ended.set()

    # --------------------------------------------------------------------------------------------------- the socket

    def _next(self) -> int:
        self._number += 1
        return self._number

    def request(self, body: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one request. Raises: GuestGone."""
        with os.fdopen(os.memfd_create("request"), "w+b", 0) as file:
            file.write(json.dumps(body).encode("utf-8", "surrogateescape"))
            file.seek(0)
            try:
                socket.send_fds(self._sock, [b"."], [file.fileno(), *fds])
            except OSError as error:
                raise GuestGone(f"{self.id} is gone: {error}") from error

    def _on_packet(self) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(self._sock, 65536, 1)
        except OSError:
            packet, fds = b"", []
        if not packet:
            self.hang_up()
            return
        answer = json.loads(packet)
        if "ready" in answer:
            _settle(self.ready, None)
        elif answer["number"] in self._connecting:
            self._on_connection(answer, fds)
        elif answer["number"] in self._processes:
            self._on_process(answer)

    def _on_connection(self, answer: Mapping[str, Any], fds: Sequence[int]) -> None:
        if fds:
            connected = socket.socket(fileno=fds[0])
            if not _settle(self._connecting[answer["number"]], connected):
                connected.close()
        elif "errno" in answer:
            _settle(self._connecting[answer["number"]], OSError(answer["errno"], answer["error"]))
        elif "code" in answer:
            del self._connecting[answer["number"]]

    def _on_process(self, answer: Mapping[str, Any]) -> None:
        process = self._processes[answer["number"]]
        if "pid" in answer:
            process.pid = answer["pid"]
            _settle(process.started, None)
        elif "errno" in answer:
            _settle(process.started, OSError(answer["errno"], answer["error"]))
        else:
            _settle(process.exited, answer["code"])
            del self._processes[answer["number"]]


def _settle(future: asyncio.Future[Any], outcome: object) -> bool:
    """Give a future its result or exception, if it has none; one that nobody waits for is no warning."""
    if future.done():
        return False
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
        future.exception()
    else:
        future.set_result(outcome)
    return True


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
                    await guest.ready
            except (TimeoutError, GuestGone):
                said = (state / "log").read_text(errors="replace")
                raise SandboxTransient(f"the guest did not start: {said}") from None
            finally:
                if not guest.ready.done() or guest.ready.exception():
                    await asyncio.shield(guest.destroy())
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
