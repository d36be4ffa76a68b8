"""envd's process service: start, listen to, signal and feed commands, as a machine's own daemon does."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from agentrl.testing.faults import Faults
from agentrl.testing.faulty import abort, hang
from agentrl.testing.guest import GuestGone, Process
from agentrl.testing.loopback_e2b import frames
from agentrl.testing.loopback_e2b.errors import RpcError
from agentrl.testing.loopback_e2b.frames import Stream
from agentrl.testing.loopback_e2b.machines import Account, Machine

EVENT_BYTES = 32 << 10
_SIGNALS = {"SIGNAL_SIGKILL": signal.SIGKILL, "SIGNAL_SIGTERM": signal.SIGTERM}


class Command:
    """One process and whoever listens to it. It goes on without listeners; what it says then is lost."""

    def __init__(self, process: Process, config: Mapping[str, Any], tag: str | None) -> None:
        self.process, self.config, self.tag = process, config, tag
        self.listeners: list[Stream] = []
        self.ended = asyncio.Event()
        self.end: dict[str, Any] = {}
        self.cut_after: int | None = None
        self._said = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Read what it says from here on."""
        self._task = asyncio.create_task(self._attend())

    def abandon(self) -> None:
        """Its machine is dead."""
        if self._task is not None:
            self._task.cancel()
        self.process.close()
        self.ended.set()

    async def _attend(self) -> None:
        """To the end of the process and of both streams: whoever else holds them keeps the command open."""
        try:
            await asyncio.gather(self._carry("stdout"), self._carry("stderr"))
            self.end = ending(await self.process.wait())
        except GuestGone:
            return
        finally:
            self.process.close()
            self.ended.set()

    async def _carry(self, name: str) -> None:
        reader: asyncio.StreamReader = getattr(self.process, name)
        while data := await reader.read(EVENT_BYTES):
            await self._tell(name, data)

    async def _tell(self, name: str, data: bytes) -> None:
        allowed = len(data) if self.cut_after is None else max(0, self.cut_after - self._said)
        self._said += len(data)
        message = {"event": {"data": {name: base64.b64encode(data[:allowed]).decode()}}}
        for stream in list(self.listeners):
            try:
                await stream.send(message)
            except ConnectionError:
                self.listeners.remove(stream)
            if allowed < len(data):
                abort(stream.request)


def ending(code: int) -> dict[str, Any]:
    """The end event for an exit code; default values are left out, as everywhere in this JSON."""
    if code < 0:
        word = f"signal: {(signal.strsignal(-code) or str(-code)).lower()}"
        return {"exitCode": -1, "status": word, "error": word}
    if code == 0:
        return {"exited": True, "status": "exit status 0"}
    return {"exitCode": code, "exited": True, "status": f"exit status {code}", "error": f"exit status {code}"}


class Processes:
    """The service of one machine at a time; ``faults`` are the server's."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    async def start(self, machine: Machine, request: web.Request, user: Account) -> web.StreamResponse:
        """Start a command and stay with it."""
        body = frames.decode(await request.read())[0]  # before anything is answered: later it would be lost
        fault = self._faults.take("exec", "reset", "hang", "silent", "cut")
        stream = Stream(request)
        try:
            command = await launch(machine, body, user)
        except RpcError as error:
            return await stream.close(error)
        if fault is not None and fault.kind == "cut":
            command.cut_after = fault.after_bytes
        if fault is not None and fault.kind != "cut":
            command.begin()
            if fault.kind != "reset":
                await hang(request)
            abort(request)
            return stream.response
        return await self._follow(command, stream, kill=True)

    async def connect(self, machine: Machine, request: web.Request, _user: Account) -> web.StreamResponse:
        """Listen to a command that somebody else started, or hear how it ended."""
        stream = Stream(request)
        try:
            command = find(machine, frames.decode(await request.read())[0])
        except RpcError as error:
            return await stream.close(error)
        return await self._follow(command, stream, kill=False)

    async def _follow(self, command: Command, stream: Stream, *, kill: bool) -> web.StreamResponse:
        limit = stream.request.headers.get("Connect-Timeout-Ms")
        await stream.open()
        await stream.send({"event": {"start": {"pid": command.process.pid}}})
        command.listeners.append(stream)
        if kill:
            command.begin()
        try:
            async with asyncio.timeout(int(limit) / 1000 if limit else None):
                await command.ended.wait()
        except TimeoutError:
            if kill:
                command.process.signal(signal.SIGKILL)
            return await stream.close(RpcError("deadline_exceeded", "context deadline exceeded"))
        finally:
            if stream in command.listeners:
                command.listeners.remove(stream)
        if command.end and command.cut_after is None:
            await stream.send({"event": {"end": command.end}})
            return await stream.close()
        abort(stream.request)
        return stream.response

    async def unary(self, machine: Machine, method: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The calls with one answer. Raises: RpcError."""
        if method == "List":
            return {"processes": [describe(c) for c in machine.commands.values() if not c.ended.is_set()]}
        command = find(machine, body)
        if method == "SendSignal":
            if command.ended.is_set():
                raise RpcError("not_found", "process not found")
            command.process.signal(_SIGNALS[body["signal"]])
        elif method == "SendInput":
            await feed(command, base64.b64decode(body["input"].get("stdin", "")))
        elif method == "CloseStdin" and command.process.stdin is not None:
            command.process.stdin.close()
        return {}

    async def stream_input(self, machine: Machine, request: web.Request, _user: Account) -> web.StreamResponse:
        """Input in parts."""
        stream = Stream(request)
        command: Command | None = None
        try:
            for message in frames.decode(await request.read()):
                if "start" in message:
                    command = find(machine, message["start"])
                elif "data" in message and command is not None:
                    await feed(command, base64.b64decode(message["data"]["input"].get("stdin", "")))
        except RpcError as error:
            return await stream.close(error)
        await stream.open()
        await stream.send({})
        return await stream.close()


async def launch(machine: Machine, body: Mapping[str, Any], user: Account) -> Command:
    """Start what a request asks for. Raises: RpcError."""
    config = body["process"]
    cwd = config.get("cwd") or machine.template.workdir or user.home
    own = {"PATH": machine.path, "HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    env = {**own, **machine.template.env, **machine.env, **config.get("envs", {})}
    argv = [config["cmd"], *config.get("args", [])]
    try:
        process = await machine.guest.spawn(argv, env=env, cwd=cwd, user=user.name, stdin=body.get("stdin", False))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RpcError("invalid_argument", f"cwd '{cwd}' does not exist") from error
    except OSError as error:
        raise RpcError("invalid_argument", f"error starting process: {(error.strerror or '').lower()}") from error
    except GuestGone as error:
        raise RpcError("unavailable", "the connection to the sandbox was lost") from error
    command = machine.commands[process.pid] = Command(process, config, body.get("tag"))
    return command


def find(machine: Machine, body: Mapping[str, Any]) -> Command:
    """The command that a request selects. Raises: RpcError."""
    selector = body.get("process", {})
    for pid, command in machine.commands.items():
        if selector.get("pid") == pid or (command.tag is not None and selector.get("tag") == command.tag):
            return command
    raise RpcError("not_found", f"process with pid {selector.get('pid', 0)} not found")


async def feed(command: Command, data: bytes) -> None:
    """Write to a command's stdin. Raises: RpcError."""
    if command.process.stdin is None:
        raise RpcError("internal", "stdin not enabled or closed")
    try:
        command.process.stdin.write(data)
        await command.process.stdin.drain()
    except ConnectionError as error:
        raise RpcError("internal", f"error writing to stdin: {error}") from error


def describe(command: Command) -> dict[str, Any]:
    """What a list says."""
    found = {"config": dict(command.config), "pid": command.process.pid}
    return found if command.tag is None else {**found, "tag": command.tag}
