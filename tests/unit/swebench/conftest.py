"""Real repositories from installed packages, and fresh sandboxes of their images."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from packages_as_repositories import SHAPES, Instance

from agentrl.api import Resources, SandboxSpec
from agentrl_swebench.grader import SweBenchGrader
from agentrl_swebench.settings import SweBenchSettings
from agentrl_swebench.tasks import SweBenchFormat


@pytest.fixture(scope="session")
def instances(tmp_path_factory):
    """All shapes, by name; made once."""
    return {name: Instance(name, tmp_path_factory.mktemp(name)) for name in SHAPES}


@pytest.fixture(scope="session")
def grader():
    """One for all tests: its worker starts once."""
    return SweBenchGrader(SweBenchSettings())


@pytest.fixture(scope="session")
def trusting():
    """Believes a pass at once."""
    return SweBenchGrader(SweBenchSettings(control_run=False))


@pytest.fixture
def protocol():
    return SweBenchFormat(SweBenchSettings())


@pytest.fixture
def open_for(local_backend):
    """``open_for(task)`` is what graders get; counts in ``opened``."""

    def for_task(task):
        @asynccontextmanager
        async def opened():
            for_task.opened += 1
            machine = await local_backend.create(
                SandboxSpec(image=task.image), labels={"agentrl-run": "t"}, lifetime_sec=3600
            )
            try:
                yield machine
            finally:
                await machine.close()

        return opened

    for_task.opened = 0
    return for_task


@pytest.fixture
def task_of(local_backend, instances, protocol):
    """The task of an instance, with its image baked; further columns change the row."""

    async def make(name, **columns):
        image = await local_backend.prepare(None, Resources(), [instances[name].layer])
        return protocol.read({**instances[name].row, "image": image, **columns})

    return make
