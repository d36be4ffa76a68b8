"""The relay into machines of both clouds, through their own ways in and the backends on their real SDKs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from provider import until

from agentrl.api import Sandbox, SandboxSpec
from agentrl.relay import channel
from agentrl.relay.relay import Relay
from agentrl.testing.loopback_daytona import LoopbackDaytona
from agentrl.testing.loopback_e2b import LoopbackE2B
from agentrl_daytona.backend import DaytonaBackend
from agentrl_daytona.settings import DaytonaSettings
from agentrl_e2b.backend import E2BBackend
from agentrl_e2b.settings import E2BSettings

ROOT = "/s/token-of-this-session"


@pytest.fixture(params=["e2b", "daytona"])
async def sandbox(request) -> AsyncIterator[Sandbox]:
    """A machine of that cloud."""
    opener = LoopbackE2B if request.param == "e2b" else LoopbackDaytona
    async with opener() as server:
        if isinstance(server, LoopbackE2B):
            backend = E2BBackend(E2BSettings(api_key=server.api_key, api_url=server.url, sandbox_url=server.url))
        else:
            backend = DaytonaBackend(DaytonaSettings(api_key=server.api_key, api_url=server.url))
        assert "tunnel" in backend.capabilities.reach
        made = await backend.create(SandboxSpec(), labels={}, lifetime_sec=600)
        yield made
        await made.close()
        await backend.aclose()
        assert not server.machines


async def hashes(sandbox, url: str, size: int) -> bool:
    """Whether a body of that size came back as its hash."""
    command = (
        f"head -c {size} /dev/urandom > body; curl -s --data-binary @body {url}{ROOT}/hash; echo; sha256sum < body"
    )
    result = await sandbox.exec(command, cwd="/tmp", timeout_sec=200)
    answer, own = result.stdout.decode().split("\n")[:2]
    return answer == own.split()[0]


async def test_by_websocket_through_the_providers_proxy(sandbox, service, caplog):
    with caplog.at_level(logging.DEBUG, logger="agentrl.relay"):
        async with Relay(sandbox, port=service.port, root=ROOT, tunnel=True) as relay:
            await until(lambda: "is open" in caplog.text)
            assert await hashes(sandbox, relay.url, 300_000)
            assert await hashes(sandbox, relay.url, 10)


async def test_by_commands(sandbox, service, monkeypatch):
    monkeypatch.setattr(channel, "HOLD_SEC", 5.0)
    async with Relay(sandbox, port=service.port, root=ROOT, tunnel=False) as relay:
        assert await hashes(sandbox, relay.url, 300_000)


async def test_a_client_that_leaves_is_noticed(sandbox, service):
    async with asyncio.timeout(200), Relay(sandbox, port=service.port, root=ROOT, tunnel=True) as relay:
        call = f"curl -s {relay.url}{ROOT}/wait & until [ -e /tmp/go ]; do sleep 0.02; done; kill $!"
        calling = asyncio.create_task(sandbox.exec(call, timeout_sec=200))
        await service.arrived.wait()
        await sandbox.write_file("/tmp/go", b"")
        await service.left.wait()
        assert (await calling).ok
