"""A detached command runs at most once, to its end, whatever happens to the connections."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from agentrl.errors import SandboxError, SandboxGone, SandboxTransient
from agentrl.tools import detached
from agentrl.tools.detached import OUTPUT_CAP, run_detached


class Unreliable:
    """A sandbox over a bad line: calls of ``verb`` (start, wait) are cut after, or before, they had their effect."""

    def __init__(self, sandbox, verb, *, times, after):
        self.sandbox, self.verb, self.left, self.after = sandbox, verb, times, after
        self.id = sandbox.id
        self.write_file, self.read_file = sandbox.write_file, sandbox.read_file

    async def exec(self, command, **options):
        cut = self.verb in command[3:5] and self.left > 0
        self.left -= cut
        if cut and not self.after:
            raise SandboxTransient("refused")
        result = await self.sandbox.exec(command, **options)
        if cut:
            raise SandboxTransient("cut")
        return result


async def test_output_exit_code_folder_and_environment(sandbox):
    result = await run_detached(
        sandbox, 'pwd; printf "\\377$WORD" >&2; cat; exit 7', cwd="/tmp", env={"WORD": "w"}, timeout_sec=60
    )
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"/tmp\n", b"\xffw")
    assert not result.timed_out and not result.truncated


async def test_an_argv_is_not_interpreted(sandbox):
    assert (await run_detached(sandbox, ["printf", "%s|", "a b", "$HOME"], timeout_sec=60)).stdout == b"a b|$HOME|"


async def test_a_signal_is_128_plus_its_number(sandbox):
    assert (await run_detached(sandbox, "kill -TERM $$", timeout_sec=60)).exit_code == 143


async def test_a_command_longer_than_an_argument_may_be(sandbox):
    assert (await run_detached(sandbox, f": {'x' * 300_000}\necho done", timeout_sec=60)).stdout == b"done\n"


async def test_a_timeout_kills_the_tree_and_keeps_the_output(sandbox, monkeypatch):
    monkeypatch.setattr(detached, "time", clock := SimpleNamespace(monotonic=lambda: 0.0))
    command = "echo first; (setsid sleep 4321 &) ; sleep 4321"
    job = asyncio.create_task(run_detached(sandbox, command, timeout_sec=60, poll_sec=0.1))
    while await running(sandbox, "4321") < 2:
        assert not job.done()
    clock.monotonic = lambda: 60.0
    result = await job
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 137, b"first\n")
    assert await running(sandbox, "4321") == 0


async def test_a_timeout_that_comes_before_the_start_is_one_too(sandbox):
    result = await run_detached(sandbox, "sleep 4321", timeout_sec=0)
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 137, b"")
    assert await running(sandbox, "sleep") == 0


async def test_an_end_is_told_when_no_process_is_left_for_the_telling(sandbox):
    await sandbox.exec("mkdir /opt/few; ln -s $(command -v sh bash setsid mkdir) /opt/few", timeout_sec=60)
    assert (await run_detached(sandbox, "exit 7", env={"PATH": "/opt/few"}, timeout_sec=60)).exit_code == 7


async def test_cancelling_kills_the_tree(sandbox):
    job = asyncio.create_task(run_detached(sandbox, "touch /tmp/started; sleep 4321", timeout_sec=600))
    while not (await sandbox.exec("test -e /tmp/started", timeout_sec=60)).ok:
        assert not job.done()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert await running(sandbox, "sleep") == 0


@pytest.mark.parametrize("after", [True, False])
async def test_a_launch_that_is_cut_starts_one_command(sandbox, after):
    line = Unreliable(sandbox, "start", times=3, after=after)
    result = await run_detached(line, "echo once >>/tmp/log; cat /tmp/log", timeout_sec=60)
    assert result.stdout == b"once\n" and line.left == 0


async def test_cut_polls_do_not_matter(sandbox):
    line = Unreliable(sandbox, "wait", times=4, after=False)
    assert (await run_detached(line, "sleep 0.3; echo done", timeout_sec=60, poll_sec=0.1)).stdout == b"done\n"
    assert line.left == 0


async def test_nobody_answering_ends_at_the_deadline(sandbox):
    line = Unreliable(sandbox, "wait", times=10_000, after=False)
    with pytest.raises(SandboxTransient):
        await run_detached(line, "sleep 4321", timeout_sec=0.5)
    assert await running(sandbox, "sleep") == 0


async def test_a_machine_that_dies_is_gone(sandbox):
    job = asyncio.create_task(run_detached(sandbox, "touch /tmp/started; sleep 4321", timeout_sec=600))
    while not (await sandbox.exec("test -e /tmp/started", timeout_sec=60)).ok:
        assert not job.done()
    await sandbox.close()
    with pytest.raises(SandboxGone):
        await job


@pytest.mark.parametrize(
    "tamper",
    [
        "kill -KILL $PPID; sleep 1",
        'echo "0000 0" >"${0%/*}/exit"; sleep 4321',
        'rm -rf "${0%/*}"; kill -KILL $PPID',
    ],
)
async def test_an_exit_code_that_nobody_vouches_for_is_an_error(sandbox, tamper):
    with pytest.raises(SandboxError):
        await run_detached(sandbox, tamper, timeout_sec=60)
    assert await running(sandbox, "sleep") == 0


async def test_a_folder_that_is_not_there_is_an_error(sandbox):
    with pytest.raises(SandboxError):
        await run_detached(sandbox, "true", cwd="/nowhere", timeout_sec=1)


async def test_the_tail_of_a_long_output_is_kept(sandbox):
    result = await run_detached(sandbox, "head -c 11000000 /dev/zero; echo end", timeout_sec=60)
    assert result.truncated and len(result.stdout) == OUTPUT_CAP and result.stdout.endswith(b"\0end\n")


async def test_nothing_is_left_behind(sandbox):
    await run_detached(sandbox, "true", timeout_sec=60)
    assert b"agentrl-" not in (await sandbox.exec("ls -A /tmp", timeout_sec=60)).stdout


async def running(sandbox, name):
    """How many have ``name`` on their command line: a process that is being taken down keeps its name a little longer."""
    count = rf"cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -cx '[{name[0]}]{name[1:]}' || :"
    return int((await sandbox.exec(count, timeout_sec=60)).stdout)
