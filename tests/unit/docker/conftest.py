"""What tests of the Docker backend share: the command line client, derived images, a machine for a block."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import docker_engine
import pytest
from docker_engine import LABELS

from agentrl.api import Sandbox, SandboxSpec
from agentrl_docker.backend import DockerBackend


@pytest.fixture
def host(docker_settings: Callable[..., Any]) -> str:
    """The address of the engine."""
    return docker_settings().host


@pytest.fixture
def docker(host: str) -> Callable[..., str]:
    """``docker("ps")``: what the client of the engine says."""
    return lambda *words: docker_engine.docker(host, *words)


@pytest.fixture
def derive(host: str, docker: Callable[..., str]) -> Iterator[Callable[..., str]]:
    """``derive("USER agent")``: an image like that of the tests but for these lines of a Dockerfile."""
    made: list[str] = []

    def derived(*changes: str) -> str:
        made.append(docker_engine.derive(host, f"agentrl-derived:{secrets.token_hex(6)}", *changes))
        return made[-1]

    yield derived
    for name in made:
        docker("image", "rm", "--force", name)


@pytest.fixture
async def opened(docker_settings: Callable[..., Any]) -> AsyncIterator[Callable[..., DockerBackend]]:
    """``opened(pull="missing")``: a backend with these settings, closed at the end."""
    async with AsyncExitStack() as stack:

        def make(**fields: Any) -> DockerBackend:
            backend = DockerBackend(docker_settings(**fields))
            stack.push_async_callback(backend.aclose)
            return backend

        yield make


@pytest.fixture
def machine() -> Callable[..., Any]:
    """``async with machine(backend, SandboxSpec field=…) as sandbox``: one for the block."""

    @asynccontextmanager
    async def one(backend: DockerBackend, **fields: Any) -> AsyncIterator[Sandbox]:
        sandbox = await backend.create(SandboxSpec(**fields), labels=LABELS, lifetime_sec=3600)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    return one
