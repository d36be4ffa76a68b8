"""The toolbox of a machine of the loopback provider: commands, and the frame that all of its requests share.

A command is the text that a shell reads from its stdin, with both streams in one. Its end is the end of everybody who holds
that stream. Not here: files and sessions.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from agentrl.testing.faults import Fault, Primitive
from agentrl.testing.faulty import abort, hang
from agentrl.testing.guest import GuestGone, Process
from agentrl.testing.loopback_daytona.account import Account
from agentrl.testing.loopback_daytona.machine import Machine
from agentrl.testing.loopback_daytona.shapes import Refused

NOT_STARTED = "bad request: failed to resolve container IP, no IP address found. Is the Sandbox started?"
SHELL = ["sh", "-c", "exec bash 2>&1"]
CUT_BYTES = 16

Answer = Callable[[Machine, web.Request], Awaitable[web.StreamResponse]]


class Toolbox:
    """Finds the machine of a request, and lets it die in the middle if that is what is to be tested."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def route(self, method: str, path: str, answer: Answer, primitive: Primitive | None = None) -> web.RouteDef:
        """A request to ``path`` of a machine's toolbox."""

        async def handle(request: web.Request) -> web.StreamResponse:
            machine = self._account.find(request.match_info["id"])
            if machine.state != "started":
                raise Refused(400, NOT_STARTED)
            machine.active_at = time.time()
            fault = self._account.faults.take(primitive, "vanish", "cut", "silent") if primitive else None
            try:
                with machine.answering(request):
                    return await self._answered(machine, request, answer, fault)
            except GuestGone:
                abort(request)
                return web.Response(status=502)
            finally:
                machine.active_at = time.time()

        return web.route(method, "/toolbox/{id}" + path, handle)

    async def _answered(
        self, machine: Machine, request: web.Request, answer: Answer, fault: Fault | None
    ) -> web.StreamResponse:
        if fault is not None and fault.kind == "vanish":
            self._account.later(self._vanish(machine, fault.delay_sec))
        response = await answer(machine, request)
        if fault is not None and fault.kind == "silent":
            await hang(request)
        if fault is not None and fault.kind == "cut":
            await _cut(request, response, fault.after_bytes)
        return response

    async def _vanish(self, machine: Machine, delay_sec: float) -> None:
        await asyncio.sleep(delay_sec)
        await self._account.delete(machine)

    # ----------------------------------------------------------------------------------------------------- commands

    def routes(self) -> list[web.RouteDef]:
        """Commands, and where one is."""
        return [
            self.route("POST", "/process/execute", execute, "exec"),
            self.route("GET", "/user-home-dir", home, "health"),
            self.route("GET", "/work-dir", home, "health"),
        ]


async def execute(machine: Machine, request: web.Request) -> web.Response:
    """Run a command to its end."""
    body = await request.json()
    if not body["command"].strip():
        raise Refused(400, "bad request: command is required")
    environment = machine.environment(body.get("envs"))
    try:
        process = await machine.started.spawn(
            SHELL, env=environment, cwd=body.get("cwd") or machine.home, user=machine.inside, stdin=True
        )
    except OSError as error:  # the provider takes this for a command that ended
        return web.json_response({"exitCode": -1, "result": f"fork/exec: chdir {body.get('cwd')}: {error.strerror}"})
    try:
        async with asyncio.timeout(body.get("timeout") or None):
            await feed(process, body["command"])
            code, out, _ = await process.output()
    except TimeoutError:
        process.signal(signal.SIGKILL, group=True)
        raise Refused(408, "command execution timeout") from None
    finally:
        process.close()
    return web.json_response({"exitCode": code if code >= 0 else -1, "result": out.decode(errors="replace")})


async def feed(process: Process, text: str) -> None:
    """Give a shell its text; one that has ended needs no more."""
    assert process.stdin is not None, "it was started with stdin"
    try:
        process.stdin.write(text.encode() + b"\n")
        await process.stdin.drain()
    except ConnectionError:
        return
    process.stdin.close()


async def home(machine: Machine, request: web.Request) -> web.Response:
    """Where commands start."""
    return web.json_response({"dir": machine.home})


async def _cut(request: web.Request, response: web.StreamResponse, after_bytes: int) -> None:
    """Send a part of the body and break off."""
    body = response.body if isinstance(response, web.Response) and isinstance(response.body, bytes) else b""
    partial = web.StreamResponse(status=response.status, headers={"Content-Type": response.headers["Content-Type"]})
    partial.content_length = len(body)
    await partial.prepare(request)
    await partial.write(body[: min(after_bytes or CUT_BYTES, len(body) - 1)])
    abort(request)
