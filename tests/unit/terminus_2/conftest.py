"""A sandbox for each test, in each place where there may be one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from places import PLACES, backend_at

from agentrl.api import Sandbox, SandboxSpec


@pytest.fixture(params=PLACES)
async def sandbox(request: pytest.FixtureRequest, local_state: Path) -> AsyncIterator[Sandbox]:
    """A machine of its own."""
    async with backend_at(request.param, request, local_state) as backend:
        machine = await backend.create(SandboxSpec(), labels={"agentrl-run": "test"}, lifetime_sec=3600)
        yield machine
        await machine.close()
