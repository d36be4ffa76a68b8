"""A loopback E2B, and our backend led there by settings alone."""

from __future__ import annotations

import pytest

from agentrl.testing.loopback_e2b import LoopbackE2B
from agentrl_e2b.backend import E2BBackend
from agentrl_e2b.settings import E2BSettings


def settings_for(server, **others):
    return E2BSettings(
        api_key=server.api_key,
        api_url=server.url,
        sandbox_url=server.url,
        request_sec=others.pop("request_sec", 10),
        **others,
    )


@pytest.fixture
async def server():
    async with LoopbackE2B(page_size=3) as server:
        yield server


@pytest.fixture
def backend_for(server):
    """Makes backends with other settings."""
    return lambda **others: E2BBackend(settings_for(server, **others))


@pytest.fixture
async def backend(server, backend_for):
    backend = backend_for()
    yield backend
    await backend.aclose()
