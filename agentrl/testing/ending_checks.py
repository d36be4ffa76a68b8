"""Checks of how commands end, and of many at once. One promise a function; see :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter

from agentrl.errors import SandboxGone
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import LIFETIME_SEC, appears, ends, machine, refuses, run, says
from agentrl.types import ExecResult

# ------------------------------------------------------------------------------------------------------- by itself


async def exit_codes_are_real(backend: SandboxBackend) -> None:
    """0, 1, 255, what ``set -e`` makes of a failure, 127 for an unknown program."""
    codes = {"true": 0, "false": 1, "exit 255": 255, "set -e; (exit 5); exit 0": 5, "trap 'exit 9' EXIT; exit 1": 9}
    async with machine(backend) as sandbox:
        for command, code in codes.items():
            result = await run(sandbox, command)
            assert result.exit_code == code, f"{command}: {result.exit_code} instead of {code}"
            assert not result.timed_out, command
        result = await run(sandbox, ["no-such-program"])
        assert result.exit_code == 127, f"unknown program: {result.exit_code} instead of 127"


async def signals_are_real(backend: SandboxBackend) -> None:
    """128+n for a command that signal n ended, its shell too; what it said before is there."""
    async with machine(backend) as sandbox:
        for number in (1, 6, 9, 11, 15):
            for command in (f"echo said; kill -{number} $$", ["bash", "-c", f"echo said; kill -{number} $$"]):
                result = await run(sandbox, command)
                assert result.exit_code == 128 + number, f"signal {number}: {result.exit_code}"
                assert result.stdout == b"said\n" and not result.timed_out, result


async def background_children_do_not_block(backend: SandboxBackend) -> None:
    """A command has ended when its first process has, though a child holds its pipes; the child lives on and may write."""
    async with machine(backend) as sandbox:
        child = "for i in $(seq 600); do [ -e /tmp/go ] && break; sleep 0.1; done; echo late; echo $i > /tmp/alive"
        result = await run(sandbox, f"({child}) & echo done")
        assert result.stdout == b"done\n" and result.ok, result
        await run(sandbox, "touch /tmp/go")
        await appears(sandbox, "/tmp/alive")
        rounds = int(await sandbox.read_file("/tmp/alive"))
        assert rounds < 600, "the command was held up until its child gave up waiting"


async def terminals_live_on(backend: SandboxBackend) -> None:
    """A tmux session outlives the command that started it and takes keys from later ones."""
    async with machine(backend) as sandbox:
        assert (await run(sandbox, "tmux new-session -d -s kit -x 80 -y 24 bash")).ok, "it did not start"
        result = await run(sandbox, ["tmux", "send-keys", "-t", "kit", "echo six-$((6*7))", "Enter"])
        assert result.ok, result
        look = (
            "for i in $(seq 2000); do tmux capture-pane -p -t kit | grep -q six-42 && exit 0; sleep 0.05; done; exit 1"
        )
        assert (await run(sandbox, look)).ok, "the screen does not show what the keys did"


# --------------------------------------------------------------------------------------------------------- by us


async def timeout_kills_the_tree(backend: SandboxBackend) -> None:
    """At the timeout daemons of the command die too, also those with a session, an environment and pipes of their own."""
    async with machine(backend) as sandbox:
        script = (
            "echo before; env -i setsid sh -c 'echo $$ > /tmp/daemon; exec sleep 600' >/dev/null 2>&1 & "
            "setsid sh -c 'echo $$ > /tmp/child; sleep 600' & sleep 600"
        )
        result = await _timed_out(sandbox, script, "/tmp/daemon", "/tmp/child")
        assert result.stdout == b"before\n", "the partial output is lost"
        await _assert_dead(sandbox, "/tmp/daemon", "/tmp/child")


async def timeout_kills_the_stubborn(backend: SandboxBackend) -> None:
    """A command that ignores signals, and one that is stopped, end at the timeout; the machine goes on."""
    async with machine(backend) as sandbox:
        stubborn = "trap '' TERM INT HUP QUIT; echo $$ > /tmp/stubborn; while :; do sleep 600; done"
        stopped = "sh -c 'echo $$ > /tmp/below; kill -STOP $$' & echo $$ > /tmp/stopped; kill -STOP $$"
        await asyncio.gather(
            _timed_out(sandbox, stubborn, "/tmp/stubborn"), _timed_out(sandbox, stopped, "/tmp/stopped", "/tmp/below")
        )
        await _assert_dead(sandbox, "/tmp/stubborn", "/tmp/stopped", "/tmp/below")
        await says(sandbox, "echo on", "on\n")


async def timeout_spares_the_others(backend: SandboxBackend) -> None:
    """A timeout ends its own command and none that runs beside it."""
    async with machine(backend) as sandbox:
        other = asyncio.create_task(run(sandbox, "until [ -e /tmp/go ]; do sleep 0.02; done; echo alive"))
        result = await sandbox.exec("sleep 600", timeout_sec=1)
        assert result.timed_out, result
        await run(sandbox, "touch /tmp/go")
        assert (await other).stdout == b"alive\n", "another command died too"


async def cancel_kills(backend: SandboxBackend) -> None:
    """Cancelling the caller ends the command."""
    async with machine(backend) as sandbox:
        script = "echo $$ > /tmp/pid.new; mv /tmp/pid.new /tmp/pid; sleep 600"
        task = asyncio.create_task(sandbox.exec(script, timeout_sec=LIFETIME_SEC))
        await appears(sandbox, "/tmp/pid")
        await _cancelled(task)
        await _assert_dead(sandbox, "/tmp/pid")


async def an_early_cancel_leaves_nothing(backend: SandboxBackend) -> None:
    """A command that was cancelled while it was being launched does not run either."""
    async with machine(backend) as sandbox:
        script = "until [ -e /tmp/go ]; do sleep 0.02; done; touch /tmp/late"
        task = asyncio.create_task(sandbox.exec(script, timeout_sec=LIFETIME_SEC))
        await asyncio.sleep(0)
        await _cancelled(task)
        assert not (await run(sandbox, "sleep 0.5; touch /tmp/go; sleep 1; ls /tmp/late")).ok, "it ran on"


async def a_dead_machine_is_gone(backend: SandboxBackend) -> None:
    """When a machine is deleted in mid-command, the command says so: never an exit code."""
    async with machine(backend) as sandbox:
        under_way = asyncio.create_task(sandbox.exec("touch /tmp/on; sleep 600", timeout_sec=LIFETIME_SEC))
        await appears(sandbox, "/tmp/on")
        await backend.delete(sandbox.id)
        await refuses(SandboxGone, under_way)
        await refuses(SandboxGone, run(sandbox, "true"))


# ----------------------------------------------------------------------------------------------------- many at once


async def commands_overlap(backend: SandboxBackend) -> None:
    """Twenty commands at once: each waits for the next one's file, so that none can run alone."""
    async with machine(backend) as sandbox:
        count = 20
        script = "touch /tmp/meet.{0}; until [ -e /tmp/meet.{1} ]; do sleep 0.02; done; echo {0}"
        results = await asyncio.gather(*(run(sandbox, script.format(i, (i + 1) % count)) for i in range(count)))
        assert [r.stdout for r in results] == [f"{i}\n".encode() for i in range(count)], results


async def commands_run_once(backend: SandboxBackend) -> None:
    """Sixty commands, many at once, each leave one line: none ran twice, none got another's answer."""
    async with machine(backend) as sandbox:
        names = [secrets.token_hex(8) for _ in range(60)]
        scripts = [f"echo {name} >> /tmp/count; echo {name}" for name in names]
        results = await asyncio.gather(*(run(sandbox, script) for script in scripts))
        assert [result.stdout.decode().strip() for result in results] == names, "answers are mixed up"
        count = Counter((await sandbox.read_file("/tmp/count")).decode().split())
        assert count == Counter(names), f"not once: {count - Counter(names) or Counter(names) - count}"


async def _timed_out(sandbox: Sandbox, script: str, *files: str) -> ExecResult:
    """How ``script`` ends at a timeout that it reaches only once ``files`` are written: a slow machine takes longer."""
    for limit_sec in (2, 15, 100):
        result = await sandbox.exec(script, timeout_sec=limit_sec)
        assert result.timed_out and not result.ok, result
        if (await run(sandbox, " && ".join(f"[ -s {file} ]" for file in files))).ok:
            return result
    raise AssertionError(f"{files} were not written in {limit_sec} s")


async def _cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("the cancellation was swallowed")


async def _assert_dead(sandbox: Sandbox, *files: str) -> None:
    """The processes whose pids are in ``files`` have ended, or do within half a minute."""
    for file in files:
        pid = (await sandbox.read_file(file)).decode().strip()
        assert await ends(sandbox, pid), f"{file} survived"


CHECKS = (
    *checks(exit_codes_are_real, signals_are_real, background_children_do_not_block),
    *checks(terminals_live_on, needs="tmux"),
    *checks(timeout_kills_the_tree, timeout_kills_the_stubborn, timeout_spares_the_others),
    *checks(cancel_kills, an_early_cancel_leaves_nothing, a_dead_machine_is_gone),
    *checks(commands_overlap, commands_run_once),
)
