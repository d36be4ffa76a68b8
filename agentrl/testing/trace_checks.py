"""Checks of what commands leave and show, and of code inside that meddles with it. See :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from pathlib import Path

from agentrl.errors import SandboxError
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import PATIENCE_SEC, appears, machine, output, run

_MEDDLING = {
    "writes a zero into files": 'read -r was < "$f"; [ "$was" = 0 ] || echo 0 > "$f"',
    "turns files into links": 'ln -sf /etc/passwd "$f"',
    "turns files into FIFOs": 'rm -f "$f" && mkfifo "$f"',
}


async def secrets_are_in_no_argv(backend: SandboxBackend) -> None:
    """Neither values of ``env`` nor stdin of a running command are on a command line, inside or on the host."""
    value, fed = secrets.token_hex(12), secrets.token_hex(12)
    async with machine(backend) as sandbox:
        script = 'touch /tmp/on; until [ -e /tmp/off ]; do sleep 0.02; done; echo "$SECRET"; cat'
        holding = asyncio.create_task(run(sandbox, script, env={"SECRET": value}, stdin=fed.encode()))
        await appears(sandbox, "/tmp/on")
        inside = await output(sandbox, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
        on_host = await asyncio.to_thread(_command_lines)
        await run(sandbox, "touch /tmp/off")
        assert (await holding).stdout == f"{value}\n{fed}".encode(), "the command did not get them"
        assert not any(secret in lines for secret in (value, fed) for lines in (inside, on_host)), "anyone can see them"


def _command_lines() -> str:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            found.append(file.read_bytes().decode(errors="replace"))
    return "\n".join(found)


async def what_is_left_does_not_grow(backend: SandboxBackend) -> None:
    """Commands and files of ours leave nothing of ours in the machine's folders for temporary files, however they ended."""
    async with machine(backend) as sandbox:
        await _use(sandbox)
        before = await _left(sandbox)
        await _use(sandbox)
        for _ in range(20):
            grown = await _left(sandbox) - before
            if not grown:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"left behind: {sorted(grown)}")


async def _use(sandbox: Sandbox) -> None:
    """Each way of leaving something behind."""
    await run(sandbox, "head -c 100000 /dev/zero", stdin=b"x" * 100_000)
    await run(sandbox, f": {'y' * 200_000}")
    await sandbox.exec("sleep 600", timeout_sec=0.5)
    await sandbox.write_file("/tmp/mine", b"x" * 100_000)
    await sandbox.read_file("/tmp/mine")
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await sandbox.exec("sleep 600", timeout_sec=PATIENCE_SEC)


async def _left(sandbox: Sandbox) -> frozenset[str]:
    """What is there beside what the last commands may need: that is gone, or called otherwise, some commands later."""
    look = "find /tmp /var/tmp /dev/shm 2>/dev/null"
    looks = [frozenset((await output(sandbox, look)).splitlines()) for _ in range(8)]
    return frozenset.intersection(*looks)


async def meddling_changes_no_verdict(backend: SandboxBackend) -> None:
    """Code inside that replaces whatever appears in /tmp makes no success of a failure and holds nobody up."""
    for what, how in _MEDDLING.items():
        async with machine(backend) as sandbox:
            await run(sandbox, f"mkdir /tmp/keep; {_meddler(how)} >/dev/null 2>&1 & disown")
            await appears(sandbox, "/tmp/keep/on")
            for command in ("exit 3", "sleep 0.3; echo said; exit 3"):
                with suppress(SandboxError):
                    result = await sandbox.exec(command, timeout_sec=5)
                    assert not result.ok, f"somebody {what} and {command!r} is a success: {result}"


def _meddler(how: str) -> str:
    """Looks two folders deep, at hidden ones too, and never ends."""
    return (
        "setsid bash -c 'shopt -s dotglob nullglob; touch /tmp/keep/on; while :; do for f in /tmp/* /tmp/*/* /tmp/*/*/*; do "
        f"""case "$f" in /tmp/keep*) continue;; esac; [ -f "$f" ] && {{ {how}; }}; done; done'"""
    )


CHECKS = checks(secrets_are_in_no_argv, what_is_left_does_not_grow, meddling_changes_no_verdict)
