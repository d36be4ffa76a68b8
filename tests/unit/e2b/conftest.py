"""A loopback E2B, and our backend led there by settings alone."""

from __future__ import annotations

import pytest
from e2b_account import settings_for

from agentrl.testing.loopback_e2b import LoopbackE2B
from agentrl_e2b.backend import E2BBackend


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
