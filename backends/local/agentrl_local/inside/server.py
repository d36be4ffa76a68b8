"""The exec server: one socket, many commands, one thread."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .commands import Command, Tail, spawn
from .files import read_file, write_file
from .processes import descendants, end

HEADER = struct.Struct("!IQ")
CHUNK = 256 << 10
STUBBORN_SEC = 5.0
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36


class Server:
    """Answers requests until the host hangs up or the lifetime is over."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.inbox = sock, bytearray()
        self.outbox: list[memoryview] = []
        self.selector = selectors.DefaultSelector()
        self.commands: dict[int, Command] = {}
        self.env: dict[str, str] = {}
        self.limits: dict[str, int] = {}
        self.cap = 0
        self.expires = float("inf")

    def serve(self) -> None:
        """The loop."""
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(wake_read, selectors.EVENT_READ, lambda _: os.read(wake_read, CHUNK))
        self.sock.setblocking(False)
        self.selector.register(self.sock, selectors.EVENT_READ, self.converse)
        while time.monotonic() < self.expires:
            for key, events in self.selector.select(self.patience()):
                key.data(events)
            self.reap()
            self.expire()

    def patience(self) -> float:
        """Seconds until something is due. A killed command is looked after again soon: it may have forked meanwhile."""
        soonest = min([self.expires, *(c.deadline for c in self.commands.values() if not c.killed)])
        busy = any(c.killed for c in self.commands.values())
        return max(0.0, min(soonest - time.monotonic(), 0.02 if busy else 3600.0))

    # ------------------------------------------------------------------------------------------------ the socket

    def converse(self, events: int) -> None:
        """Send what waits, read what came."""
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ:
            try:
                data = self.sock.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                raise SystemExit(0)
            self.inbox += data
            self.read_frames()

    def read_frames(self) -> None:
        """Handle every complete request."""
        while len(self.inbox) >= HEADER.size:
            head, body = HEADER.unpack_from(self.inbox)
            size = HEADER.size + head + body
            if len(self.inbox) < size:
                return
            request = json.loads(self.inbox[HEADER.size : HEADER.size + head])
            payload = bytes(self.inbox[HEADER.size + head : size])
            del self.inbox[:size]
            try:
                getattr(self, "do_" + request["do"])(request, payload)
            except OSError as error:
                self.answer(request, {"errno": error.errno or errno.EIO, "error": error.strerror or str(error)})
            except ValueError as error:  # a NUL in a name
                self.answer(request, {"errno": errno.EINVAL, "error": str(error)})

    def answer(self, request: Mapping[str, Any], head: Mapping[str, object], *payloads: bytes) -> None:
        """Queue the one answer to ``request``."""
        encoded = json.dumps({**head, "id": request["id"], "sizes": [len(p) for p in payloads]}).encode()
        self.outbox.append(memoryview(HEADER.pack(len(encoded), sum(map(len, payloads))) + encoded))
        self.outbox += [memoryview(p) for p in payloads if p]
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket takes."""
        while self.outbox:
            try:
                sent = self.sock.send(self.outbox[0][:CHUNK])
            except BlockingIOError:
                break
            except OSError:
                raise SystemExit(0) from None
            self.outbox[0] = self.outbox[0][sent:]
            if not self.outbox[0]:
                del self.outbox[0]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outbox else 0)
        self.selector.modify(self.sock, wanted, self.converse)

    # ------------------------------------------------------------------------------------------------ the requests

    def do_hello(self, request: Mapping[str, Any], _payload: bytes) -> None:
        """What holds for the whole life."""
        self.env, self.limits, self.cap = request["env"], request["limits"], request["output_cap"]
        self.expires = time.monotonic() + request["lifetime_sec"]
        self.answer(request, {})

    def do_read(self, request: Mapping[str, Any], _payload: bytes) -> None:
        """A file out."""
        self.answer(request, {}, read_file(request["path"], request["max_bytes"]))

    def do_write(self, request: Mapping[str, Any], payload: bytes) -> None:
        """A file in."""
        write_file(request["path"], payload, request["mode"])
        self.answer(request, {})

    def do_exec(self, request: Mapping[str, Any], payload: bytes) -> None:
        """Start a command; it is answered when it ends."""
        cwd = request["cwd"] or self.env["HOME"]
        pid, out, err, feed = spawn(request, cwd, self.env, self.limits)
        command = Command(request["id"], pid, request["marker"], request["timeout_sec"], self.cap)
        command.pipes = ((out, Tail(self.cap)), (err, Tail(self.cap)))
        self.commands[pid] = command
        for fd, tail in command.pipes:
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, self.puller(fd, tail, owned=True))
        if feed is not None:
            self.feed(feed, payload)

    def do_cancel(self, request: Mapping[str, Any], _payload: bytes) -> None:
        """End the command of another request; that one is answered, this one is not."""
        for command in self.commands.values():
            if command.number == request["target"] and not command.killed:
                command.killed = "cancelled"
                command.sweep(set(self.commands))

    # ---------------------------------------------------------------------------------------------------- the pipes

    def puller(self, fd: int, tail: Tail, *, owned: bool = False) -> Callable[[int], None]:
        """Reads ``fd`` into ``tail`` once. At the end of a pipe that is ``owned`` by a command its number stays taken until then."""

        def pull(_events: int) -> None:
            try:
                data = os.read(fd, CHUNK)
            except BlockingIOError:
                return
            if data:
                tail.add(data)
            else:
                self.selector.unregister(fd)
                if not owned:
                    os.close(fd)

        return pull

    def feed(self, fd: int, payload: bytes) -> None:
        """Write ``payload`` to a command's stdin as it reads, then close it."""
        os.set_blocking(fd, False)
        left = memoryview(payload)

        def push(_events: int) -> None:
            nonlocal left
            try:
                while left:
                    left = left[os.write(fd, left[:CHUNK]) :]
            except BlockingIOError:
                return
            except BrokenPipeError:
                pass  # the command does not read it: its right
            self.selector.unregister(fd)
            os.close(fd)

        self.selector.register(fd, selectors.EVENT_WRITE, push)

    def drain(self, fd: int, tail: Tail) -> None:
        """What the pipe holds now. Whoever still has it open writes for nobody from here on, but gets no SIGPIPE."""
        if fd not in self.selector.get_map():
            os.close(fd)
            return
        waiting = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
        while waiting > 0:
            data = os.read(fd, min(CHUNK, waiting))
            waiting -= len(data)
            tail.add(data)
        self.selector.modify(fd, selectors.EVENT_READ, self.puller(fd, Tail(0)))

    # ------------------------------------------------------------------------------------------------------- the ends

    def reap(self) -> None:
        """Collect every child that ended, ours and those that were left to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.commands:
                self.finish(self.commands.pop(pid), status)

    def finish(self, command: Command, status: int) -> None:
        """Answer for an ended command; of a killed one nothing is left by then."""
        patience = time.monotonic() + STUBBORN_SEC
        while command.killed and command.sweep(set(self.commands)) and time.monotonic() < patience:
            time.sleep(0.002)
        for fd, tail in command.pipes:
            self.drain(fd, tail)
        tails = [tail for _, tail in command.pipes]
        out, err = (tail.take() for tail in tails)
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        head = {"exit_code": code, "killed": command.killed, "truncated": any(tail.cut for tail in tails)}
        self.answer({"id": command.number}, head, out, err)

    def expire(self) -> None:
        """Kill what is overdue, and go on killing what was killed but still runs."""
        now = time.monotonic()
        for command in list(self.commands.values()):
            if not command.killed and now >= command.deadline:
                command.killed = "timeout"
            if command.killed:
                command.sweep(set(self.commands))


def listeners(ports: Sequence[int]) -> list[socket.socket]:
    """One listening socket on the sandbox's own loopback for each port. Raises: OSError."""
    held = []
    for port in ports:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        held.append(listener)
    return held


def shield() -> None:
    """Nobody traces us or reads our descriptors, and orphans become our children."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL if os.getpid() == 1 else signal.SIG_IGN)


def main() -> None:
    """Arguments: the socket's descriptor, the ports to listen on (joined by commas, possibly none)."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(sock.fileno(), False)
    shield()
    try:
        held = listeners([int(port) for port in sys.argv[2].split(",") if port])
    except OSError as error:
        sock.sendall(f"cannot listen on {sys.argv[2]} inside: {error}".encode())
        return
    socket.send_fds(sock, [b"ready"], [listener.fileno() for listener in held])
    for listener in held:
        listener.close()
    try:
        Server(sock).serve()
    finally:
        # Without a namespace of its own the kernel does not end our children for us.
        while os.getpid() != 1 and end(descendants):
            time.sleep(0.002)
