"""A service on the host, and sandboxes that have no other way to it than the relay."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from port_host import Ported, PortHost

from agentrl.api import Sandbox, SandboxSpec
from agentrl.relay import launch
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings

ROOT = "/s/token-of-this-session"


class Service:
    """What stands in for the gateway: says what it was sent, talks in pieces, waits for ever, and knows what became of requests."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: Counter[str] = Counter()
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self.more = asyncio.Semaphore(0)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        self.asked[request.path] += 1
        body = await request.read()
        match request.path.removeprefix(ROOT):
            case "/hash":
                return web.Response(text=hashlib.sha256(body).hexdigest())
            case "/back":
                return web.Response(body=body)
            case "/pieces":
                return await self._pieces(request)
            case "/break" if request.transport is not None:
                request.transport.abort()
            case "/wait":
                self.arrived.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.left.set()
        return web.Response(text="hello")

    async def _pieces(self, request: web.Request) -> web.StreamResponse:
        """An event for each time that the test lets one go."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(3):
            await self.more.acquire()
            await response.write(b"data: %d\n\n" % number)
        return response


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is told to end does, however busy the machine is."""
    monkeypatch.setattr(launch, "_GOODBYE_SEC", 100.0)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """Listening on the host's loopback."""
    made = Service()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
def walled(sandbox: Sandbox) -> Sandbox:
    """A network of its own, no way out and no way in."""
    return sandbox


@pytest.fixture
async def port_host() -> AsyncIterator[PortHost]:
    """The provider's."""
    async with PortHost() as host:
        yield host


@pytest.fixture
async def ported(tmp_path, port_host) -> AsyncIterator[Ported]:
    """A sandbox whose ports the provider leads to."""
    backend = LocalBackend(LocalSettings(state_dir=str(tmp_path / "machines"), unconfined=True))
    yield Ported(await backend.create(SandboxSpec(), labels={}, lifetime_sec=600), port_host)
    await backend.aclose()
