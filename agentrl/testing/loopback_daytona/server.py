"""The loopback provider as one HTTP server. See :mod:`agentrl.testing.loopback_daytona` for what it is and is not."""

from __future__ import annotations

import asyncio
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from agentrl.testing.faults import Faults, Primitive
from agentrl.testing.faulty import faulty
from agentrl.testing.guest_view import remove_tree
from agentrl.testing.loopback_daytona import files, sessions
from agentrl.testing.loopback_daytona.account import Account
from agentrl.testing.loopback_daytona.control import Control
from agentrl.testing.loopback_daytona.events import Events
from agentrl.testing.loopback_daytona.machine import Machine
from agentrl.testing.loopback_daytona.preview import Previews
from agentrl.testing.loopback_daytona.shapes import DaytonaWords, Refused, Snapshot, refusal
from agentrl.testing.loopback_daytona.toolbox import Toolbox
from agentrl.testing.ports import bound

BODY_CAP = 1 << 40
_PRIMITIVES: tuple[tuple[str, str, Primitive], ...] = (
    ("POST", r"/api/sandbox", "create"),
    ("GET", r"/api/sandbox", "list"),
    ("GET", r"/api/sandbox/[^/]+", "get"),
    ("DELETE", r"/api/sandbox/[^/]+", "delete"),
    ("POST", r"/api/sandbox/[^/]+/last-activity", "keep_alive"),
    ("POST", r"/api/sandbox/[^/]+/snapshot", "prepare"),
    ("GET", r"/api/sandbox/[^/]+/ports/.*", "port"),
    ("POST", r"/api/snapshots", "prepare"),
    ("GET", r"/api/snapshots/[^/]+", "prepare"),
    ("POST", r"/toolbox/[^/]+/process/execute", "exec"),
    ("POST", r"/toolbox/[^/]+/process/session/[^/]+/exec", "exec"),
    ("POST", r"/toolbox/[^/]+/files/bulk-upload", "write"),
    ("POST", r"/toolbox/[^/]+/files/bulk-download", "read"),
    ("GET", r"/toolbox/[^/]+/files/download", "read"),
    ("GET", r"/toolbox/[^/]+/(?:work-dir|user-home-dir)", "health"),
)


class LoopbackDaytona:
    """A provider on this host's loopback, for as long as the block lasts::

        async with LoopbackDaytona() as server:
            backend = DaytonaBackend(DaytonaSettings(api_url=server.url, api_key=server.api_key))

    ``requests``: what was asked for, in order, as method and route. ``minute_sec``: how long the provider's minute takes, so
    that its clocks can be tested, also changed while machines run; ``machine_limit``: how many machines the quota allows;
    ``page_size``: of lists; ``build_sec``: how long a snapshot takes to build; ``events``: whether there is Socket.IO.
    """

    def __init__(
        self,
        *,
        minute_sec: float = 60.0,
        machine_limit: int | None = None,
        page_size: int = 100,
        build_sec: float = 0.3,
        events: bool = True,
    ) -> None:
        self.api_key = f"dtn_{secrets.token_hex(16)}"
        self.faults = Faults()
        self.requests: list[str] = []
        self.origin = ""
        self._minute_sec, self._limit, self._page_size, self._build_sec = (
            minute_sec,
            machine_limit,
            page_size,
            build_sec,
        )
        self._events = Events(self.api_key) if events else None
        self._folder: Path | None = None
        self._site: web.SockSite | None = None

    @property
    def url(self) -> str:
        """Of the API, for ``DAYTONA_API_URL``."""
        return f"{self.origin}/api"

    @property
    def machines(self) -> Mapping[str, Machine]:
        """The machines that exist, by id; nothing is left when this is empty."""
        return MappingProxyType(self._account.machines)

    @property
    def created(self) -> Sequence[Machine]:
        """All machines that ever were."""
        return [*self._account.graveyard.values(), *self._account.machines.values()]

    @property
    def minute_sec(self) -> float:
        """How long the provider's minute takes from now on."""
        return self._account.minute_sec

    @minute_sec.setter
    def minute_sec(self, seconds: float) -> None:
        self._account.minute_sec = seconds

    def environment(self) -> dict[str, str]:
        """The variables that lead the SDK here."""
        return {"DAYTONA_API_URL": self.url, "DAYTONA_API_KEY": self.api_key, "DAYTONA_TARGET": "loopback"}

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """The snapshots that exist, by name."""
        return {snapshot.name: snapshot for snapshot in self._account.snapshots.values()}

    async def __aenter__(self) -> LoopbackDaytona:
        self._folder = Path(tempfile.mkdtemp(prefix="agentrl-daytona-"))
        self._account = Account(
            self._folder, self.faults, minute_sec=self._minute_sec, limit=self._limit, build_sec=self._build_sec
        )
        self._account.on_change = self._changed
        self._previews = Previews(self._account, self._folder / "ways")
        app = web.Application(
            client_max_size=BODY_CAP,
            middlewares=[
                self._record,
                self._refuse,
                self._authenticate,
                faulty(self.faults, DaytonaWords(), primitive=_primitive),
            ],
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        toolbox = Toolbox(self._account)
        self._app_routes(app, toolbox)
        await self._runner.setup()
        self._kept = bound()
        self.origin = self._control.origin = f"http://127.0.0.1:{self._kept.getsockname()[1]}"
        await self._listen()
        self._account.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._events is not None:
            await self._events.aclose()
        await self._account.aclose()
        await self._previews.aclose()
        await self._runner.cleanup()
        self._kept.close()
        if self._folder is not None:
            await asyncio.to_thread(remove_tree, self._folder)

    @property
    def orders(self) -> Mapping[str, Mapping[str, Any]]:
        """The body of each request for a machine that was granted, by id."""
        return MappingProxyType(self._account.orders)

    async def vanish(self, machine_id: str) -> None:
        """Let a machine die as if its host had failed."""
        await self._account.delete(self._account.find(machine_id))

    async def stop(self, machine_id: str) -> None:
        """Stop a machine as its auto-stop would."""
        await self._account.stop(self._account.find(machine_id))

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """For the block nothing listens at ``url``: connections are refused, open ones are cut. Machines live on."""
        if self._site is not None:
            await self._site.stop()
        for connection in list(self._runner.server.connections if self._runner.server else ()):
            if connection.transport is not None:
                connection.transport.abort()
        try:
            yield
        finally:
            await self._listen()

    # ------------------------------------------------------------------------------------------------------ the parts

    async def _listen(self) -> None:
        """At the port that is kept for us."""
        self._site = web.SockSite(self._runner, bound(self._kept.getsockname()[1]), backlog=1024)
        await self._site.start()

    def _app_routes(self, app: web.Application, toolbox: Toolbox) -> None:
        self._control = Control(self._account, self._page_size)
        app.add_routes(self._control.routes())
        app.add_routes(toolbox.routes())
        app.add_routes(files.routes(toolbox))
        app.add_routes(sessions.routes(toolbox))
        app.add_routes(self._previews.routes())
        if self._events is not None:
            app.router.add_get("/api/socket.io/", self._events.handle)

    def _changed(self, machine: Machine) -> None:
        if self._events is not None:
            about = {"sandbox": self._control.shown(machine), "newState": machine.state}
            self._events.tell("sandbox.state.updated", about)

    @web.middleware
    async def _record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        self.requests.append(f"{request.method} {resource.canonical if resource else request.path}")
        return await handler(request)

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refused as refused:
            return refusal(refused.status, refused.message)

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Previews have tokens of their own, and listeners say theirs later."""
        open_to_all = request.path.startswith(("/preview/", "/api/socket.io/"))
        if not open_to_all and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            raise Refused(401, "Invalid credentials")
        return await handler(request)


def _primitive(request: web.Request) -> Primitive | None:
    for method, pattern, primitive in _PRIMITIVES:
        if request.method == method and re.fullmatch(pattern, request.path):
            return primitive
    return None
