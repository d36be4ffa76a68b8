"""A loopback Daytona, and our backend led there by settings alone."""

from __future__ import annotations

import pytest

from agentrl.testing.loopback_daytona import LoopbackDaytona
from agentrl_daytona.backend import DaytonaBackend
from agentrl_daytona.settings import DaytonaSettings


@pytest.fixture
async def server():
    async with LoopbackDaytona(page_size=3) as running:
        yield running


@pytest.fixture
async def backend_for(server):
    """Makes backends with other settings, and closes them."""
    made = []

    def make(**others):
        made.append(DaytonaBackend(DaytonaSettings(api_key=server.api_key, api_url=server.url, **others)))
        return made[-1]

    yield make
    for backend in made:
        await backend.aclose()


@pytest.fixture
def backend(backend_for):
    return backend_for()
