"""The Daytona backend against the conformance kit, through the real SDK and the loopback provider."""

import pytest
from conformance import assert_conforms, each_check

from agentrl.testing.loopback_daytona import LoopbackDaytona
from agentrl_daytona.backend import DaytonaBackend
from agentrl_daytona.settings import DaytonaSettings


@pytest.fixture
async def server():
    async with LoopbackDaytona(minute_sec=6.0) as running:
        yield running
        assert not running.machines, "machines are left"


@pytest.fixture
async def backend(server):
    made = DaytonaBackend(DaytonaSettings(api_url=server.url, api_key=server.api_key, image="debian:12"))
    yield made
    await made.aclose()


@each_check()
async def test_conformance(backend, check):
    await assert_conforms(check, backend)
