"""The server: one address for the control plane and for all machines."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from agentrl.testing.faults import Faults, Primitive
from agentrl.testing.faulty import faulty
from agentrl.testing.guest import Host
from agentrl.testing.guest_view import remove_tree
from agentrl.testing.loopback_e2b import envd
from agentrl.testing.loopback_e2b.builds import Builder
from agentrl.testing.loopback_e2b.control import PRIMITIVES, Control
from agentrl.testing.loopback_e2b.envd import Envd
from agentrl.testing.loopback_e2b.errors import ApiError, Words
from agentrl.testing.loopback_e2b.machines import Machine
from agentrl.testing.ports import bound

_ANY_SIZE = 1 << 40


class LoopbackE2B:
    """E2B's API at ``url``. ``page_size``: the longest page of a list. Everything belongs to one event loop."""

    def __init__(self, *, page_size: int = 100) -> None:
        self.page_size = page_size
        self.api_key = f"e2b_{secrets.token_hex(20)}"
        self.faults = Faults()
        self.machines: dict[str, Machine] = {}
        self.created: list[Machine] = []
        self.requests: list[str] = []
        self.url = ""
        self.folder = Path(tempfile.mkdtemp(prefix="agentrl-e2b-"))
        self.host = Host(self.folder / "guests")
        self.builder = Builder(self.host, self.folder, self.faults)
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None

    async def __aenter__(self) -> LoopbackE2B:
        self._control, self._envd = Control(self), Envd(self)
        middlewares: list[Middleware] = [
            self._record,
            faulty(self.faults, Words(), primitive=self._primitive, streamed={"exec"}),
            self._enter,
        ]
        app = web.Application(middlewares=middlewares, client_max_size=_ANY_SIZE)
        app.add_routes(self._control.routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        self._kept = bound()
        self.url = f"http://127.0.0.1:{self._kept.getsockname()[1]}"
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(machine.kill() for machine in list(self.machines.values())))
        await self.builder.aclose()
        if self._runner is not None:
            await self._runner.cleanup()
        self._kept.close()
        await self.host.aclose()
        await asyncio.to_thread(remove_tree, self.folder)

    def environment(self) -> dict[str, str]:
        """The variables that lead the SDK here."""
        return {"E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url, "E2B_API_KEY": self.api_key}

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """For the block nothing listens at ``url``: connections are refused, open ones are cut. Machines live on."""
        if self._site is not None:
            await self._site.stop()
        for connection in list(self._runner.server.connections if self._runner and self._runner.server else ()):
            if connection.transport is not None:
                connection.transport.abort()
        try:
            yield
        finally:
            await self._listen()

    def add(self, machine: Machine) -> None:
        """It is alive."""
        self.machines[machine.id] = machine
        self.created.append(machine)

    def forget(self, machine: Machine) -> None:
        """It is not any more."""
        self.machines.pop(machine.id, None)

    async def _listen(self) -> None:
        assert self._runner is not None
        self._site = web.SockSite(self._runner, bound(self._kept.getsockname()[1]), backlog=1024)
        await self._site.start()

    # --------------------------------------------------------------------------------------------- every request

    def _primitive(self, request: web.Request) -> Primitive | None:
        there = envd.address(request)
        if there is not None:
            return envd.primitive(request, there[1])
        resource = request.match_info.route.resource
        return PRIMITIVES.get((request.method, resource.canonical if resource else ""))

    @web.middleware
    async def _record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = request.path if envd.address(request) or resource is None else resource.canonical
        self.requests.append(f"{request.method} {path}")
        return await handler(request)

    @web.middleware
    async def _enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Machines are reached at any path; the control plane needs the key."""
        there = envd.address(request)
        if there is not None:
            return await self._envd.answer(request, *there)
        try:
            if not request.path.startswith("/uploads/") and request.headers.get("X-API-KEY") != self.api_key:
                raise ApiError(401, "Invalid API key")
            return await handler(request)
        except ApiError as error:
            return error.response()
        except web.HTTPNotFound:
            return ApiError(404, f"no such path: {request.path}").response()
