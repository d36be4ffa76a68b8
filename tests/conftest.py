"""Fixtures for tests that need a machine: real bubblewrap sandboxes with their files in a temp folder, and a Docker engine."""

from __future__ import annotations

import os

import docker_engine
import pytest
from hypothesis import HealthCheck, settings

from agentrl.api import SandboxSpec
from agentrl_docker.settings import DockerSettings
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings

# How long an example takes, or its making, says how busy the machine is. The same examples each time: a run says something about
# a change. HYPOTHESIS_PROFILE=fuzz searches for others, and for much longer.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "fuzz", deadline=None, max_examples=1_000_000, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.fixture(scope="session")
def local_state(tmp_path_factory):
    """One folder for all tests: its snapshots of the host are made once."""
    return tmp_path_factory.mktemp("local")


@pytest.fixture
async def local_backend(local_state):
    backend = LocalBackend(LocalSettings(state_dir=str(local_state)))
    yield backend
    await backend.aclose()


@pytest.fixture
async def sandbox(local_backend):
    machine = await local_backend.create(SandboxSpec(), labels={"agentrl-run": "test"}, lifetime_sec=3600)
    yield machine
    await machine.close()


@pytest.fixture(scope="session")
def docker_settings(pytestconfig):
    """``docker_settings(field=…)`` for the engine of these tests and its image; skips where there can be none."""
    try:
        host = docker_engine.docker_host(pytestconfig)
    except docker_engine.NoEngine as error:
        pytest.skip(str(error))
    return lambda **fields: DockerSettings(**{"host": host, "image": docker_engine.IMAGE, **fields})


@pytest.fixture
async def docker_backend(docker_settings):
    from agentrl_docker.backend import DockerBackend

    backend = DockerBackend(docker_settings())
    yield backend
    await backend.aclose()


def pytest_unconfigure(config):
    """The engine ends with the run."""
    docker_engine.stop(config)
