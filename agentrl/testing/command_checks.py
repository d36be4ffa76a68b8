"""Checks of commands: what goes in and what comes out. One promise a function; see :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import secrets

from agentrl.sandbox import SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import ALL_BYTES, machine, output, run
from agentrl.types import SandboxSpec

CAP_BYTES = 10 << 20
DISK_KB = 256 << 10
MEMORY_KB = 512 << 10
_ENDLESS = "yes abcdefg | head -c 20000000; touch /tmp/enough; yes abcdefg"
_DISK_USAGE = "du -skc /tmp /var/tmp /dev/shm 2>/dev/null | tail -n 1; sleep 0.1"

# ------------------------------------------------------------------------------------------------------------ in


async def sequences_are_argv(backend: SandboxBackend) -> None:
    """A sequence meets no shell: every argument arrives as it is, the empty one too."""
    async with machine(backend) as sandbox:
        words = ["a b", "$HOME", "*", "", "-n", "q'u\"o`te", "new\nline", "\x01\x02\x1b[2J\x7f\t", "back\\n", "ü☃"]
        result = await run(sandbox, ["printf", "%s|", *words])
        assert result.stdout == "".join(f"{word}|" for word in words).encode(), result.stdout


async def stdin_is_closed(backend: SandboxBackend) -> None:
    """A command that reads stdin without any given finds its end; no stream is a terminal."""
    async with machine(backend) as sandbox:
        result = await run(sandbox, "cat; for fd in 0 1 2; do [ -t $fd ] && echo terminal $fd; done; echo end")
        assert result.stdout == b"end\n", result.stdout


async def megabytes_of_stdin_arrive(backend: SandboxBackend) -> None:
    """20 MB of any bytes."""
    data = secrets.token_bytes(1 << 20) * 20
    async with machine(backend) as sandbox:
        result = await run(sandbox, "sha256sum", stdin=data)
        assert result.stdout.split()[:1] == [hashlib.sha256(data).hexdigest().encode()], result


async def unread_stdin_is_fine(backend: SandboxBackend) -> None:
    """A command may end without reading the megabytes that it was given, at once or after a while."""
    async with machine(backend) as sandbox:
        for command in ("exit 4", "sleep 0.2; exit 4"):
            result = await run(sandbox, command, stdin=b"x" * (4 << 20))
            assert result.exit_code == 4, result.exit_code


async def cwd_is_entered(backend: SandboxBackend) -> None:
    """``cwd`` holds, whatever its name; a missing one is data."""
    async with machine(backend) as sandbox:
        await run(sandbox, ["mkdir", "-p", "/tmp/a 'b' $x"])
        result = await run(sandbox, "pwd", cwd="/tmp/a 'b' $x")
        assert result.stdout == b"/tmp/a 'b' $x\n", result.stdout
        result = await run(sandbox, "true", cwd="/no/such")
        assert result.exit_code != 0, "a missing cwd went unnoticed"


async def env_is_added(backend: SandboxBackend) -> None:
    """``env`` is added to the spec's and to the machine's, with values of any text."""
    odd = {
        "THEIRS": "2 $x `id`",
        "lines": "one\ntwo\n",
        "QUOTES": "'\"\\",
        "EMPTY": "",
        "TEXT": "ü=☃",
        "LONG": "y" * 60_000,
    }
    async with machine(backend, SandboxSpec(env={"OURS": "1", "EMPTY": "no"})) as sandbox:
        names = " ".join(odd)
        result = await run(
            sandbox, f'printf "%s|" "$OURS" ; for n in {names}; do printf "%s|" "${{!n}}"; done', env=odd
        )
        assert result.stdout == "".join(f"{value}|" for value in ("1", *odd.values())).encode(), result.stdout[:300]
        assert (await output(sandbox, 'echo "$PATH"')).strip(), "no PATH"


async def env_does_not_leak(backend: SandboxBackend) -> None:
    """What one command was given, or exported, the next one does not have."""
    async with machine(backend) as sandbox:
        await run(sandbox, "export LEAK_B=1; cd /tmp; umask 0", env={"LEAK_A": "1"})
        before = await output(sandbox, "env | grep LEAK; pwd; umask")
        after = await output(sandbox, "cd /; env | grep LEAK; cd - >/dev/null; pwd; umask")
        assert "LEAK" not in before + after, before
        assert before == after and before.splitlines()[0] != "/tmp", (before, after)


async def long_commands_run(backend: SandboxBackend) -> None:
    """A script of 200 kB, more than the kernel takes as one argument, ends with its own exit code."""
    async with machine(backend) as sandbox:
        result = await run(sandbox, f"x={'y' * 200_000}; echo ${{#x}}; exit 3")
        assert (result.exit_code, result.stdout) == (3, b"200000\n"), (result.stdout[:100], result.stderr[:100])


# ----------------------------------------------------------------------------------------------------------- out


async def streams_are_bytes(backend: SandboxBackend) -> None:
    """stdin, stdout and stderr carry every byte, apart from each other."""
    async with machine(backend) as sandbox:
        result = await run(sandbox, "tee /dev/stderr", stdin=ALL_BYTES * 1000)
        assert result.stdout == ALL_BYTES * 1000, "stdout differs from stdin"
        assert result.stderr == ALL_BYTES * 1000, "stderr differs from stdin"


async def control_bytes_stay_where_they_are(backend: SandboxBackend) -> None:
    """What looks like a marker, an escape or an end is output like any other, and no newline is added to it."""
    async with machine(backend) as sandbox:
        out, err = b"\1\1\1out\2\2\2\x1b[2J\r\n\4\x1a\0 x", b"\2\2\2err\1\1\1\r"
        written = "".join(f"\\{byte:03o}" for byte in out), "".join(f"\\{byte:03o}" for byte in err)
        result = await run(sandbox, f"printf '{written[0]}'; printf '{written[1]}' >&2; exit 6")
        assert (result.exit_code, result.stdout, result.stderr) == (6, out, err), result


async def cut_characters_are_whole(backend: SandboxBackend) -> None:
    """A character that is written byte by byte arrives as one."""
    async with machine(backend) as sandbox:
        script = "for byte in '\\342' '\\202' '\\254'; do printf $byte; sleep 0.1; done"
        result = await run(sandbox, script)
        assert result.stdout == "€".encode(), result.stdout


async def output_is_capped(backend: SandboxBackend) -> None:
    """Of more than 10 MiB the tail is kept, and said so; exactly 10 MiB is whole."""
    async with machine(backend) as sandbox:
        script = f"head -c {CAP_BYTES + 1} /dev/zero; echo END; head -c {CAP_BYTES} /dev/zero >&2"
        result = await run(sandbox, script)
        assert result.truncated, "not flagged"
        assert len(result.stdout) <= CAP_BYTES, len(result.stdout)
        assert result.stdout.endswith(b"\0END\n"), result.stdout[-10:]
        assert len(result.stderr) == CAP_BYTES, len(result.stderr)


async def endless_output_is_bounded(backend: SandboxBackend) -> None:
    """Output without end fills neither the machine's disk nor our memory; at the timeout its tail is there."""
    async with machine(backend) as sandbox:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sizes = [0]
        for limit_sec in (2.5, 15, 100):
            endless = asyncio.create_task(sandbox.exec(_ENDLESS, timeout_sec=limit_sec))
            while not endless.done():
                sizes.append(int((await output(sandbox, _DISK_USAGE)).split()[0]))
            result = await endless
            if (await run(sandbox, "[ -e /tmp/enough ]")).ok:  # else the machine was too slow
                break
        assert result.timed_out and result.truncated, (result.exit_code, result.timed_out, result.truncated)
        assert len(result.stdout) <= CAP_BYTES, len(result.stdout)
        assert set(result.stdout.split(b"\n")[1:-1]) == {b"abcdefg"}, result.stdout[-100:]
        assert max(sizes) < DISK_KB, f"{max(sizes)} kB on the machine's disk"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < MEMORY_KB, f"{grown} kB of our memory"


CHECKS = checks(
    sequences_are_argv,
    stdin_is_closed,
    megabytes_of_stdin_arrive,
    unread_stdin_is_fine,
    cwd_is_entered,
    env_is_added,
    env_does_not_leak,
    long_commands_run,
    streams_are_bytes,
    control_bytes_stay_where_they_are,
    cut_characters_are_whole,
    output_is_capped,
    endless_output_is_bounded,
)
