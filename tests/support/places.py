"""Where the machines of a test are: for tests of agents and rollouts, which must not notice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentrl.api import SandboxBackend
from agentrl_docker.backend import DockerBackend
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings

PLACES = ("local", pytest.param("docker", marks=pytest.mark.slow))
"""For ``@pytest.mark.parametrize("place", PLACES)``."""


@asynccontextmanager
async def backend_at(place: str, request: pytest.FixtureRequest, state: Path) -> AsyncIterator[SandboxBackend]:
    """The backend for the block; ``state``: where local sandboxes keep their files."""
    backend: SandboxBackend
    if place == "local":
        backend = LocalBackend(LocalSettings(state_dir=str(state)))
    else:
        backend = DockerBackend(request.getfixturevalue("docker_settings")())
    try:
        yield backend
    finally:
        await backend.aclose()
