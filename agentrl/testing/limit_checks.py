"""Checks of limits and users, for backends that declare them. See :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import re
import secrets

from agentrl.errors import SandboxGone
from agentrl.sandbox import SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import machine, run, says
from agentrl.types import Resources, SandboxSpec

NOBODY = "nobody"
"""The ordinary user that every system has."""


async def pids_are_limited(backend: SandboxBackend) -> None:
    """A machine for 100 processes does not run 300 at once."""
    async with machine(backend, SandboxSpec(resources=Resources(pids=100))) as sandbox:
        script = "sh -c 'for i in 1 2 3; do for j in $(seq 100); do sleep 30 & echo $j; done; done'"
        started = (await run(sandbox, script)).stdout.count(b"\n")
        assert 10 < started < 150, f"{started} processes run"


async def memory_is_limited(backend: SandboxBackend) -> None:
    """A machine with 1 GiB does not hold 1.3 GB; holding less is fine."""
    hold = "set -o pipefail; head -c {0}000000 /dev/zero | tail -c {0}000000 | tail -c 1 | wc -c"
    async with machine(backend, SandboxSpec(resources=Resources(memory_mb=1024))) as sandbox:
        assert (await run(sandbox, hold.format(200))).ok, "200 MB are too much"
        try:
            result = await run(sandbox, hold.format(1300))
        except SandboxGone:
            return
        assert not result.ok, "1.3 GB fit"


async def cpus_are_limited(backend: SandboxBackend) -> None:
    """A machine with one CPU uses one, however many processes are busy."""
    async with machine(backend, SandboxSpec(resources=Resources(cpus=1))) as sandbox:
        script = "for i in 1 2 3 4; do timeout 1 sh -c 'while :; do :; done' & done; wait; times"
        result = await run(sandbox, f"a=$(date +%s%N); {script}; b=$(date +%s%N); echo $(((b - a) / 1000000))")
        *_, children, passed = result.stdout.decode().splitlines()
        busy = sum(60 * int(m) + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", children))
        assert busy < 1.3 * int(passed) / 1000, f"busy for {busy} s in {passed} ms"


async def commands_run_as_their_user(backend: SandboxBackend) -> None:
    """``user`` decides whose the process is and whose the files are that it makes."""
    async with machine(backend) as sandbox:
        ids = [(await run(sandbox, "id -u", user=user)).stdout.strip() for user in ("root", NOBODY)]
        assert ids[0] == b"0" and ids[1] not in (b"", b"0"), ids
        path = f"/tmp/{secrets.token_hex(8)}"
        await run(sandbox, f"mkdir -m 777 {path}", user="root")
        result = await run(sandbox, f"echo x > {path}/made && stat -c %u {path}/made", user=NOBODY, stdin=b"")
        assert result.stdout.split() == ids[1:], result


async def users_are_apart(backend: SandboxBackend) -> None:
    """A user neither reads what only root may read nor ends what root runs."""
    async with machine(backend) as sandbox:
        await run(
            sandbox, "umask 077; echo secret > /tmp/secret; sleep 300 >/dev/null 2>&1 & echo $! > /tmp/pid", user="root"
        )
        await run(sandbox, "chmod 644 /tmp/pid", user="root")
        result = await run(sandbox, "cat /tmp/secret", user=NOBODY)
        assert not result.ok and result.stdout != b"secret\n", result
        assert not (await run(sandbox, "kill -9 $(cat /tmp/pid)", user=NOBODY)).ok, "it was killed"
        await says(sandbox, "LC_ALL=C; kill -0 $(cat /tmp/pid) 2>&1 | grep -v permitted", "")


CHECKS = (
    *checks(pids_are_limited, needs="pids"),
    *checks(memory_is_limited, needs="memory_mb"),
    *checks(cpus_are_limited, needs="cpus"),
    *checks(commands_run_as_their_user, users_are_apart, needs="users"),
)
