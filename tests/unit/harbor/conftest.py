"""Task directories, and fresh local sandboxes with the tasks' layers baked."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.api import Submission
from agentrl_harbor.grader import HarborGrader
from agentrl_harbor.settings import HarborSettings
from agentrl_harbor.tasks import HarborFormat
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings

EXAMPLES = Path(__file__).parents[3] / "examples" / "harbor" / "tasks"
SETTINGS = HarborSettings(build=True)


@pytest.fixture
def protocol():
    return HarborFormat(SETTINGS)


@pytest.fixture
def grader():
    return HarborGrader(SETTINGS)


@pytest.fixture
async def host(local_state):
    """A backend that takes this host for every image."""
    backend = LocalBackend(LocalSettings(state_dir=str(local_state), ignore_image=True))
    yield backend
    await backend.aclose()


@pytest.fixture
def open_for(host):
    """``open_for(task)`` is what graders get; counts in ``opened``."""

    def for_task(task):
        @asynccontextmanager
        async def opened():
            for_task.opened += 1
            spec = task.machine
            image = await host.prepare(spec.image, spec.resources, spec.layers)
            machine = await host.create(
                replace(spec, image=image, layers=()), labels={"agentrl-run": "t"}, lifetime_sec=3600
            )
            try:
                yield machine
            finally:
                await machine.close()

        return opened

    for_task.opened = 0
    return for_task


@pytest.fixture
def example(protocol):
    return lambda name: protocol.read({"path": str(EXAMPLES / name)})


@pytest.fixture
def make_folder(tmp_path):
    """A task directory; ``tests`` is the body of test.sh, ``toml`` is added to task.toml, ``files`` are further ones."""

    def make(*, tests="", toml="", dockerfile="FROM debian:12\nWORKDIR /app\n", files=()):
        texts = {
            "task.toml": f'version = "1.0"\n{toml}\n',
            "instruction.md": "Do it.\n",
            "environment/Dockerfile": dockerfile,
            "tests/test.sh": f"#!/bin/bash\n{tests}\n",
            "solution/solve.sh": "echo done >/app/done\n",
            **dict(files),
        }
        folder = tmp_path / "a-task"
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    return make


@pytest.fixture
def make_task(make_folder, protocol):
    return lambda **parts: protocol.read({"path": str(make_folder(**parts))})


@pytest.fixture
def work(protocol, open_for):
    """What an agent that runs ``script`` in the workdir submits."""

    async def submit(task, script):
        async with open_for(task)() as machine:
            prepared = await protocol.prepare(machine, task)
            done = await machine.exec(script, cwd=task.workdir, timeout_sec=60)
            assert done.ok, done.stderr.decode()
            return await protocol.collect(machine, task, prepared)

    return submit


@pytest.fixture
def judge(grader, open_for, work):
    """The grade of an agent that runs ``script``."""

    async def grade(task, script, *, timeout_sec=300):
        return await grader.grade(task, await work(task, script), open_for(task), timeout_sec=timeout_sec)

    return grade


@pytest.fixture
def nothing():
    return Submission("", b"")
