"""A machine that has run out of something gives no verdict by accident: the tests' own end, or none."""

from __future__ import annotations

import subprocess
from contextlib import asynccontextmanager
from functools import partial

import pytest
from mortal import mortal, points

from agentrl.api import ExitStatus, GraderError, PatchError, Resources, SandboxError, SandboxSpec
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings

WAIT_SEC = 300
SIZE = "32m"
FILL = """\
try:
    with open("/tmp/fill", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
except OSError:
    pass
"""
# Each child is a group of its own, and stays.
CROWD = """\
import os, time
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    except OSError:
        break
"""


def calc(text, sign="-"):
    return f"cat >calc.py <<'X'\n{text}\ndef add(a, b):\n    return a {sign} b\nX"


def opener(backend, resources=Resources()):  # noqa: B008  (frozen)
    @asynccontextmanager
    async def opened(*_task):
        spec = SandboxSpec(resources=resources)
        machine = await backend.create(spec, labels={"agentrl-run": "test"}, lifetime_sec=3600)
        try:
            yield machine
        finally:
            await machine.close()

    return opened


@pytest.fixture
async def small_disk(tmp_path):
    """Opens machines whose whole disk is small."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    backend = LocalBackend(LocalSettings(state_dir=str(tmp_path)))
    yield opener(backend)
    await backend.aclose()
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.mark.parametrize("sign", "+-")
async def test_code_that_fills_the_disk_gets_no_verdict(grader, task, submit, small_disk, sign):
    submission = await submit(task(), calc(FILL, sign))
    with pytest.raises(GraderError, match="no verdict"):
        await grader.grade(task(), submission, small_disk, timeout_sec=WAIT_SEC)


async def test_a_disk_that_fills_up_by_itself_takes_no_reward_away(grader, task, small_disk):
    async def fill(sandbox):
        await sandbox.exec("cat /dev/zero >/tmp/fill", timeout_sec=WAIT_SEC)

    grade = partial(grader.grade, task(), grader.gold(task()), timeout_sec=WAIT_SEC)
    whole = mortal(small_disk, number=1)
    assert (await grade(whole)).reward == 1.0
    for last in points(whole.made[0].calls, 5):
        try:
            reward = (await grade(mortal(small_disk, number=1, last=last, misfortune=fill))).reward
        except (GraderError, PatchError, SandboxError):
            reward = None
        assert reward != 0.0, last


async def test_a_crowd_of_processes_does_not_hide_how_the_tests_ended(grader, task, submit, local_backend):
    if "pids" not in local_backend.capabilities.resources:
        pytest.skip("processes are not limited here")
    crowded = opener(local_backend, Resources(pids=64))
    grade = await grader.grade(task(), await submit(task(), calc(CROWD)), crowded, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.exit_status, grade.details["exit_code"]) == (0.0, ExitStatus.UNSOLVED, 1)
