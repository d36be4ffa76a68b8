"""What is asked of a machine itself: its daemon on port 49983, and whatever else listens inside."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from typing import TYPE_CHECKING

from aiohttp import web

from agentrl.testing.faults import Primitive
from agentrl.testing.guest import GuestGone
from agentrl.testing.loopback_e2b import files, ports
from agentrl.testing.loopback_e2b.errors import ApiError, RpcError, gone
from agentrl.testing.loopback_e2b.machines import Account, Machine
from agentrl.testing.loopback_e2b.processes import Processes

if TYPE_CHECKING:
    from agentrl.testing.loopback_e2b.server import LoopbackE2B

PORT = 49983
_HOST = re.compile(r"(\d+)-([a-z0-9]+)\.")
_READS = {"Stat", "ListDir"}
_WRITES = {"MakeDir", "Move", "Remove"}


def address(request: web.Request) -> tuple[str, int] | None:
    """Which machine and port a request is for, by headers or by the host's name; None: the control plane."""
    sandbox_id = request.headers.get("E2b-Sandbox-Id")
    if sandbox_id is not None:
        return sandbox_id, int(request.headers.get("E2b-Sandbox-Port", PORT))
    named = _HOST.match(request.host)
    return (named[2], int(named[1])) if named else None


def primitive(request: web.Request, port: int) -> Primitive | None:
    """What a request to a machine is."""
    if port != PORT:
        return "port"
    if request.path == "/files":
        return "read" if request.method == "GET" else "write"
    service, _, method = request.path.strip("/").partition("/")
    if service == "filesystem.Filesystem":
        return "read" if method in _READS else "write" if method in _WRITES else None
    return {"/health": "health", "/process.Process/Start": "exec"}.get(request.path)  # type: ignore[return-value]


class Envd:
    """The daemons of all machines."""

    def __init__(self, server: LoopbackE2B) -> None:
        self._server = server
        self._processes = Processes(server.faults)

    async def answer(self, request: web.Request, sandbox_id: str, port: int) -> web.StreamResponse:
        """Pass a request on to its machine."""
        machine = self._server.machines.get(sandbox_id)
        if machine is None or machine.paused:
            return gone(sandbox_id)
        machine.talking[id(request)] = request
        try:
            asked = primitive(request, port)
            fault = self._server.faults.take(asked, "vanish") if asked else None
            if fault is not None:
                asyncio.get_running_loop().call_later(fault.delay_sec, machine.kill)
            return await self._dispatch(machine, request, port)
        except (ApiError, RpcError) as error:
            return error.response()
        except (GuestGone, ConnectionError):  # nobody is left to answer, or nobody to hear it
            return gone(sandbox_id)
        finally:
            machine.talking.pop(id(request), None)

    async def _dispatch(self, machine: Machine, request: web.Request, port: int) -> web.StreamResponse:
        if port != PORT:
            return await ports.carry(machine, port, request)
        if request.path == "/health":
            return web.Response(status=204)
        user = await self._user(machine, request)
        if request.path == "/files":
            if request.method == "GET":
                return await files.download(machine, request, user, self._server.faults)
            return await files.upload(machine, request, user)
        service, _, method = request.path.strip("/").partition("/")
        if service == "process.Process":
            return await self._process(machine, request, method, user)
        if service == "filesystem.Filesystem":
            return web.json_response(await files.call(machine, method, await _body(request), user))
        raise ApiError(404, "404 page not found")

    async def _process(self, machine: Machine, request: web.Request, method: str, user: Account) -> web.StreamResponse:
        streams = {
            "Start": self._processes.start,
            "Connect": self._processes.connect,
            "StreamInput": self._processes.stream_input,
        }
        if method in streams:
            return await streams[method](machine, request, user)
        return web.json_response(await self._processes.unary(machine, method, await _body(request)))

    async def _user(self, machine: Machine, request: web.Request) -> Account:
        """Whom a request speaks for. Raises: ApiError when it may not, RpcError for a user that does not exist."""
        query = request.query
        signed = (
            request.path == "/files" and "signature" in query and _signature(machine, request) == query["signature"]
        )
        if not signed and request.headers.get("X-Access-Token") != machine.token:
            raise ApiError(
                401, "unauthorized access, please provide a valid access token or method signing if supported"
            )
        kind, _, encoded = request.headers.get("Authorization", "").partition(" ")
        named = base64.b64decode(encoded).decode().partition(":")[0] if kind == "Basic" else ""
        user = named or query.get("username") or machine.template.user
        try:
            return await machine.account(user)
        except KeyError:
            raise RpcError("unauthenticated", f"invalid user: '{user}'") from None


def _signature(machine: Machine, request: web.Request) -> str:
    """What a signed URL must carry, as long as it has not expired. Raises: ApiError."""
    query = request.query
    expiry = query.get("signature_expiration")
    if expiry is not None and int(expiry) < time.time():
        raise ApiError(401, "signature is already expired")
    operation = "read" if request.method == "GET" else "write"
    words = [query.get("path", ""), operation, query.get("username", ""), machine.token, *([expiry] if expiry else [])]
    digest = hashlib.sha256(":".join(words).encode()).digest()
    return "v1_" + base64.b64encode(digest).rstrip(b"=").decode()


async def _body(request: web.Request) -> dict[str, object]:
    return dict(json.loads(await request.read() or b"{}"))
