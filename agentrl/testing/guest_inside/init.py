"""The first process of a guest: starts processes, does file operations as a user, and connects to ports, for the host.

Requests and answers are single packets over one inherited socket; a request's body, JSON, comes in a memfd, so that it may be
long. When the host hangs up, this process ends, and the kernel ends everything else inside.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import random
import resource
import select
import shutil
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from .files import perform

CHUNK = 1 << 20
CONNECT_SEC = 5.0
Request = dict[str, Any]


class Init:
    """The host's socket, and the processes that we started for it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.children: dict[int, int] = {}  # the host's number → pid
        self.starting: dict[int, int] = {}  # number → a pipe that ends when exec has worked, or says why it has not

    def serve(self) -> None:
        """Until the host hangs up."""
        wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the kernel drops for the first process, as all others
        say(self.sock, {"ready": True})
        while True:
            ready = set(select.select([self.sock.fileno(), wake, *self.starting.values()], [], [])[0])
            if wake in ready:
                with suppress(BlockingIOError):
                    os.read(wake, CHUNK)
            for number in [number for number, pipe in self.starting.items() if pipe in ready]:
                self.tell_start(number)
            if self.sock.fileno() in ready:
                packet, fds, _, _ = socket.recv_fds(self.sock, 65536, 4)
                if not packet:
                    return
                self.handle(fds)
            self.reap()

    def handle(self, fds: list[int]) -> None:
        """Do what one request asks, in a child."""
        with os.fdopen(fds[0], "rb") as body:
            request = json.loads(body.read())
        if request["do"] == "signal":
            self.signal(request)
        else:
            self.fork(request, fds[1:])
        for fd in fds[1:]:
            os.close(fd)

    def signal(self, request: Request) -> None:
        """To a process that has not been buried yet, so that its number is still its own."""
        pid = self.children.get(request["target"])
        if pid is not None:
            with suppress(ProcessLookupError):
                (os.killpg if request["group"] else os.kill)(pid, request["signal"])

    def fork(self, request: Request, fds: list[int]) -> None:
        """Start a child for ``request``."""
        number = request["number"]
        watch, hold = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
        except OSError as error:
            os.close(watch)
            say(self.sock, {"number": number, "errno": error.errno, "error": str(error)})
        else:
            if pid == 0:
                become(self.sock, request, fds, hold)
            self.children[number], self.starting[number] = pid, watch
        os.close(hold)

    def tell_start(self, number: int) -> None:
        """Whether exec has worked."""
        with os.fdopen(self.starting.pop(number), "rb") as pipe:
            failure = pipe.read()
        say(self.sock, {"number": number, **(json.loads(failure) if failure else {"pid": self.children[number]})})

    def reap(self) -> None:
        """Tell how our children ended, and bury orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = next((number for number, known in self.children.items() if known == pid), None)
            if number is not None:
                if number in self.starting:
                    self.tell_start(number)
                del self.children[number]
                say(self.sock, {"number": number, "code": os.waitstatus_to_exitcode(status)})


def say(sock: socket.socket, answer: dict[str, object], fds: list[int] | None = None) -> None:
    """Send one packet; a host that is gone is noticed by reading."""
    with suppress(OSError):
        socket.send_fds(sock, [json.dumps(answer).encode()], fds or [])


# ------------------------------------------------------------------------------------------ in a child of its own


def become(sock: socket.socket, request: Request, fds: list[int], hold: int) -> None:
    """Turn into what was asked for; never returns. What fails before it begins is written to ``hold``."""
    try:
        if request["do"] == "connect":
            with connected(request["port"]) as there:
                say(sock, {"number": request["number"], "connected": True}, [there.fileno()])
            os._exit(0)
        prepare(request, fds)
        if request["do"] == "file":
            os.close(hold)
            os._exit(perform(request["operation"], request["arguments"]))
        os.chdir(request["cwd"])
        os.execve(
            find(request["argv"][0], request["env"].get("PATH", "/usr/bin:/bin")), request["argv"], request["env"]
        )
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        os.write(hold, json.dumps({"errno": number, "error": getattr(error, "strerror", None) or str(error)}).encode())
    finally:
        os._exit(127)


def connected(port: int) -> socket.socket:
    """A connection to ``port`` of our own loopback, of whichever family listens. Raises: OSError."""
    try:
        return socket.create_connection(("127.0.0.1", port), CONNECT_SEC)
    except ConnectionRefusedError:
        return socket.create_connection(("::1", port), CONNECT_SEC)


def prepare(request: Request, fds: list[int]) -> None:
    """Session, standard streams, user. Raises: OSError."""
    os.setsid()
    if len(fds) < 3:
        fds = [os.open(os.devnull, os.O_RDONLY), *fds]
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.set_inheritable(fd, False)  # it was received, and would be held open by every descendant
    for name in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(name, signal.SIG_DFL)
    turn_into(request["user"])
    os.umask(0o022)


def turn_into(user: str) -> None:
    """Become ``user``, who may have been added meanwhile. Raises: OSError."""
    if user == "root":
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise OSError(errno.EPERM, f"there is no user {user}") from None
    os.setgroups(os.getgrouplist(user, entry.pw_gid))
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def find(program: str, path: str) -> str:
    """Where execvp(3) would find it. Raises: FileNotFoundError."""
    found = shutil.which(program, path=path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, f"{program}: not found")
    return found


def limit(cpus: int, memory_mb: int) -> None:
    """0: none. Memory is what each process may have."""
    allowed = sorted(os.sched_getaffinity(0))
    if 0 < cpus < len(allowed):
        os.sched_setaffinity(0, random.sample(allowed, cpus))
    if memory_mb:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, memory_mb << 20))


def main() -> None:
    """Arguments: the socket's descriptor, CPUs, megabytes."""
    number, cpus, memory_mb = map(int, sys.argv[1:])
    limit(cpus, memory_mb)
    host = socket.socket(fileno=number)
    host.set_inheritable(False)  # what we start must not speak in our name
    Init(host).serve()
