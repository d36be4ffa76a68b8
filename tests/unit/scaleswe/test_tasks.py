"""Start states and submissions."""

from __future__ import annotations

import pytest

from agentrl.api import GraderError, PatchTooLarge
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.tasks import ScaleSweFormat


async def test_the_start_state_is_a_clean_repository_and_nothing_done_is_an_empty_patch(protocol, task, sandbox):
    prepared = await protocol.prepare(sandbox, task())
    shown = await sandbox.exec("git rev-parse HEAD; git status --porcelain", cwd="/work/calc", timeout_sec=60)
    assert shown.stdout.decode().split() == [prepared.base_commit]
    submission = await protocol.collect(sandbox, task(), prepared)
    assert (submission.patch, submission.base_commit) == (b"", prepared.base_commit)


async def test_two_sandboxes_start_from_one_commit(protocol, task, open_sandbox):
    bases = set()
    for _ in range(2):
        async with open_sandbox() as machine:
            bases.add((await protocol.prepare(machine, task())).base_commit)
    assert len(bases) == 1


async def test_a_failing_pre_command_is_named_with_its_output(protocol, task, sandbox):
    broken = task(pre_commands=["true", "ls /nowhere", "echo unreached >/tmp/unreached"])
    with pytest.raises(GraderError, match=r"pre_commands failed at `ls /nowhere` with exit code 2: .*No such file"):
        await protocol.prepare(sandbox, broken)
    assert not (await sandbox.exec("test -e /tmp/unreached", timeout_sec=60)).ok


async def test_an_empty_workdir_is_a_broken_task(protocol, task, sandbox):
    with pytest.raises(GraderError, match="empty"):
        await protocol.prepare(sandbox, task(pre_commands=None))


async def test_endless_pre_commands_are_a_broken_task(task, sandbox):
    hasty = ScaleSweFormat(ScaleSweSettings(pre_commands_timeout_sec=0.5))
    with pytest.raises(GraderError, match=r"longer than 0\.5 s"):
        await hasty.prepare(sandbox, task(pre_commands="sleep 600"))


async def test_collect_ends_what_still_writes(protocol, task, sandbox):
    prepared = await protocol.prepare(sandbox, task())
    await sandbox.exec(
        "(setsid sh -c 'while :; do date +%N >ticks; done' &) ; until [ -s ticks ]; do :; done",
        cwd="/work/calc",
        timeout_sec=60,
    )
    submission = await protocol.collect(sandbox, task(), prepared)
    assert b"ticks" in submission.patch
    first = await sandbox.read_file("/work/calc/ticks")
    running = r"cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -cx '[d]ate'"
    assert (await sandbox.exec(running, timeout_sec=60)).stdout == b"0\n"
    assert await sandbox.read_file("/work/calc/ticks") == first


async def test_a_patch_over_the_cap_is_typed(task, sandbox):
    tight = ScaleSweFormat(ScaleSweSettings(patch_max_bytes=1000))
    prepared = await tight.prepare(sandbox, task())
    await sandbox.exec("head -c 5000 /dev/urandom >noise", cwd="/work/calc", timeout_sec=60)
    with pytest.raises(PatchTooLarge):
        await tight.collect(sandbox, task(), prepared)
