"""Checks of commands: what goes in and comes out, and how they end. One promise a function; see :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio

from agentrl.sandbox import SandboxBackend
from agentrl.testing.rig import ALL_BYTES, PATIENCE_SEC, ends, machine, output
from agentrl.types import SandboxSpec

CAP_BYTES = 10 << 20


# ---------------------------------------------------------------------------------------------------- commands


async def streams_are_bytes(backend: SandboxBackend) -> None:
    """stdin, stdout and stderr carry every byte, apart from each other."""
    async with machine(backend) as sandbox:
        result = await sandbox.exec("tee /dev/stderr", stdin=ALL_BYTES * 1000, timeout_sec=PATIENCE_SEC)
        assert result.stdout == ALL_BYTES * 1000, "stdout differs from stdin"
        assert result.stderr == ALL_BYTES * 1000, "stderr differs from stdin"


async def exit_codes_are_real(backend: SandboxBackend) -> None:
    """0, 1, 255, 127 for an unknown program, and 128+n for signal n."""
    async with machine(backend) as sandbox:
        for command, code in (("true", 0), ("false", 1), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)):
            result = await sandbox.exec(command, timeout_sec=PATIENCE_SEC)
            assert result.exit_code == code, f"{command}: {result.exit_code} instead of {code}"
            assert not result.timed_out, command
        result = await sandbox.exec(["no-such-program"], timeout_sec=PATIENCE_SEC)
        assert result.exit_code == 127, f"unknown program: {result.exit_code} instead of 127"


async def sequences_are_argv(backend: SandboxBackend) -> None:
    """A sequence meets no shell."""
    async with machine(backend) as sandbox:
        result = await sandbox.exec(["printf", "%s|", "a b", "$HOME", "*"], timeout_sec=PATIENCE_SEC)
        assert result.stdout == b"a b|$HOME|*|", result.stdout


async def stdin_is_closed(backend: SandboxBackend) -> None:
    """A command that reads stdin without any given finds its end."""
    async with machine(backend) as sandbox:
        result = await sandbox.exec("cat; echo end", timeout_sec=PATIENCE_SEC)
        assert result.stdout == b"end\n", result.stdout


async def unread_stdin_is_fine(backend: SandboxBackend) -> None:
    """A command may end without reading the megabytes that it was given."""
    async with machine(backend) as sandbox:
        result = await sandbox.exec("exit 4", stdin=b"x" * (4 << 20), timeout_sec=PATIENCE_SEC)
        assert result.exit_code == 4, result.exit_code


async def cwd_and_env_hold(backend: SandboxBackend) -> None:
    """``cwd`` is entered; ``env`` is added to the spec's, for this command only; a missing ``cwd`` is data."""
    async with machine(backend, SandboxSpec(env={"OURS": "1"})) as sandbox:
        await sandbox.exec("mkdir -p '/tmp/a b'", timeout_sec=PATIENCE_SEC)
        show = "pwd; echo $OURS $THEIRS"
        result = await sandbox.exec(show, cwd="/tmp/a b", env={"THEIRS": "2 $x"}, timeout_sec=PATIENCE_SEC)
        assert result.stdout == b"/tmp/a b\n1 2 $x\n", result.stdout
        assert (await output(sandbox, "echo $OURS $THEIRS")) == "1\n"
        result = await sandbox.exec("true", cwd="/no/such", timeout_sec=PATIENCE_SEC)
        assert result.exit_code not in (0, None), "a missing cwd went unnoticed"


async def long_commands_run(backend: SandboxBackend) -> None:
    """A script of 200 kB, more than the kernel takes as one argument."""
    async with machine(backend) as sandbox:
        result = await sandbox.exec(f"x={'y' * 200_000}; echo ${{#x}}", timeout_sec=PATIENCE_SEC)
        assert result.stdout == b"200000\n", (result.stdout[:100], result.stderr[:100])


async def output_is_capped(backend: SandboxBackend) -> None:
    """Of more than 10 MiB the tail is kept, and said so; exactly 10 MiB is whole."""
    async with machine(backend) as sandbox:
        script = f"head -c {CAP_BYTES + 1} /dev/zero; echo END; head -c {CAP_BYTES} /dev/zero >&2"
        result = await sandbox.exec(script, timeout_sec=PATIENCE_SEC)
        assert result.truncated, "not flagged"
        assert len(result.stdout) <= CAP_BYTES, len(result.stdout)
        assert result.stdout.endswith(b"\0END\n"), result.stdout[-10:]
        assert len(result.stderr) == CAP_BYTES, len(result.stderr)


async def commands_overlap(backend: SandboxBackend) -> None:
    """Twenty commands at once: each waits for the next one's file, so that none can run alone."""
    async with machine(backend) as sandbox:
        count = 20
        script = "touch /tmp/meet.{0}; until [ -e /tmp/meet.{1} ]; do sleep 0.02; done; echo {0}"
        results = await asyncio.gather(
            *(sandbox.exec(script.format(i, (i + 1) % count), timeout_sec=PATIENCE_SEC) for i in range(count))
        )
        assert [r.stdout for r in results] == [f"{i}\n".encode() for i in range(count)], results


# ------------------------------------------------------------------------------------------------------- ends


async def timeout_kills_the_tree(backend: SandboxBackend) -> None:
    """At the timeout daemons of the command die too, also those with a session, an environment and pipes of their own."""
    async with machine(backend) as sandbox:
        script = (
            "echo before; env -i setsid sh -c 'echo $$ > /tmp/daemon; exec sleep 600' >/dev/null 2>&1 & "
            "setsid sh -c 'echo $$ > /tmp/child; sleep 600' & sleep 600"
        )
        result = await sandbox.exec(script, timeout_sec=2)
        assert result.timed_out and not result.ok, result
        assert result.stdout == b"before\n", "the partial output is lost"
        for file in ("/tmp/daemon", "/tmp/child"):
            pid = (await sandbox.read_file(file)).decode().strip()
            assert await ends(sandbox, pid), f"{file} survived"


async def cancel_kills(backend: SandboxBackend) -> None:
    """Cancelling the caller ends the command."""
    async with machine(backend) as sandbox:
        task = asyncio.create_task(
            sandbox.exec("echo $$ > /tmp/pid.new; mv /tmp/pid.new /tmp/pid; sleep 600", timeout_sec=900)
        )
        await sandbox.exec("until [ -e /tmp/pid ]; do sleep 0.02; done", timeout_sec=PATIENCE_SEC)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        else:
            raise AssertionError("the cancellation was swallowed")
        assert await ends(sandbox, (await sandbox.read_file("/tmp/pid")).decode().strip()), "it still runs"


async def background_children_do_not_block(backend: SandboxBackend) -> None:
    """A command has ended when its first process has, though a child holds its pipes; the child lives on and may write."""
    async with machine(backend) as sandbox:
        script = "(until [ -e /tmp/go ]; do sleep 0.02; done; echo late; echo alive > /tmp/alive) & echo done"
        result = await sandbox.exec(script, timeout_sec=PATIENCE_SEC)
        assert result.stdout == b"done\n" and result.ok, result
        wait = "touch /tmp/go; for i in $(seq 200); do [ -s /tmp/alive ] && exit 0; sleep 0.05; done; exit 1"
        assert (await sandbox.exec(wait, timeout_sec=PATIENCE_SEC)).ok, "the child died with the command"
