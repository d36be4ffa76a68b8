"""Checks of machines and their lives. One promise a function; see :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress

from agentrl.errors import FileDenied, FileMissing, SandboxError, SandboxGone
from agentrl.sandbox import SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import LABELS, LIFETIME_SEC, appears, machine, refuses, run, says
from agentrl.types import SandboxSpec

CLOCK_SEC = 600.0
_BASICS = r"""set -e
for d in null zero urandom fd stdin stdout stderr shm; do [ -e /dev/$d ] || echo no /dev/$d; done
[ -r /proc/self/status ] || echo no /proc
[ "$(cat <(echo substituted))" = substituted ] || echo no process substitution
[ "$(cat <<< here)" = here ] || echo no here-strings
f=$(mktemp); echo x > $f; [ -s $f ] || echo no temporary files; rm $f
cd; pwd >/dev/null; touch .kit; rm .kit"""


async def the_basics_are_there(backend: SandboxBackend) -> None:
    """Devices, /proc, a home and a place for temporary files: what any program expects."""
    async with machine(backend) as sandbox:
        result = await run(sandbox, _BASICS)
        assert result.ok and result.stdout == b"", result


async def machines_are_apart(backend: SandboxBackend) -> None:
    """What one writes, in its own folders and where it may in the system's, the other does not see."""
    async with machine(backend) as one, machine(backend) as other:
        for path in ("/tmp/mine", "/mine/file", "/opt/mine"):
            with suppress(FileDenied):
                await one.write_file(path, b"x")
            await refuses(FileMissing, other.read_file(path))


async def machines_start_together(backend: SandboxBackend) -> None:
    """Four at once, each its own."""

    async def one(number: int) -> tuple[str, bytes]:
        async with machine(backend) as sandbox:
            await run(sandbox, f"echo {number} >> /tmp/number")
            return sandbox.id, await sandbox.read_file("/tmp/number")

    found = await asyncio.gather(*map(one, range(4)))
    assert len({name for name, _ in found}) == 4, found
    assert [data for _, data in found] == [f"{number}\n".encode() for number in range(4)], found


async def close_is_final_and_idempotent(backend: SandboxBackend) -> None:
    """Closing twice, also at once, is fine; afterwards every call says gone, one that was under way too."""
    async with machine(backend) as sandbox:
        under_way = asyncio.create_task(sandbox.exec("touch /tmp/on; sleep 600", timeout_sec=LIFETIME_SEC))
        await appears(sandbox, "/tmp/on")
        await asyncio.gather(sandbox.close(), sandbox.close())
        await sandbox.close()
        await refuses(SandboxGone, sandbox.exec("true", timeout_sec=5))
        await refuses(SandboxGone, under_way)
        await refuses(SandboxGone, sandbox.read_file("/etc/passwd"))
        await refuses(SandboxGone, sandbox.write_file("/tmp/x", b"x"))


async def machines_are_attached_to(backend: SandboxBackend) -> None:
    """``attach`` gives the same machine; one that does not exist, or no longer, is gone."""
    async with machine(backend) as sandbox:
        again = await backend.attach(sandbox.id)
        await sandbox.write_file("/tmp/mine", b"x")
        assert again.id == sandbox.id and await again.read_file("/tmp/mine") == b"x", "another machine"
        await again.close()
        await refuses(SandboxGone, run(sandbox, "true"))
        for name in (sandbox.id, f"none-{secrets.token_hex(8)}"):
            await refuses(SandboxGone, backend.attach(name))


async def machines_are_listed_until_closed(backend: SandboxBackend) -> None:
    """``list`` finds a machine by its labels, until it was closed or deleted; deleting what is gone is success."""
    wanted = {"agentrl-rollout": secrets.token_hex(8)}
    labels = {**LABELS, **wanted}
    closed = await backend.create(SandboxSpec(), labels=labels, lifetime_sec=LIFETIME_SEC)
    deleted = await backend.create(SandboxSpec(), labels=labels, lifetime_sec=LIFETIME_SEC)
    try:
        listed = await backend.list(wanted)
        assert {info.id for info in listed} == {closed.id, deleted.id}, listed
        assert all(labels.items() <= info.labels.items() for info in listed), listed
        assert all(abs(info.created_at - time.time()) < CLOCK_SEC for info in listed), listed
        others = await backend.list({"agentrl-rollout": "nobody's"})
        assert list(others) == [], f"not asked for: {others}"
    finally:
        await closed.close()
        await backend.delete(deleted.id)
    await backend.delete(deleted.id)
    assert list(await backend.list(wanted)) == [], "something is left"


async def a_lifetime_ends(backend: SandboxBackend) -> None:
    """A machine dies by itself when its lifetime is over."""
    try:
        sandbox = await backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=2)
    except SandboxError:  # a slow machine's is over before it has booted
        sandbox = await backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=30)
    try:
        await refuses(SandboxGone, sandbox.exec("sleep 600", timeout_sec=LIFETIME_SEC))
    finally:
        await sandbox.close()


async def machines_are_kept_alive(backend: SandboxBackend) -> None:
    """``keep_alive`` is answered while a command runs and while none does, and a dead machine is not kept."""
    async with machine(backend) as sandbox:
        await sandbox.keep_alive()
        await asyncio.gather(sandbox.keep_alive(), run(sandbox, "sleep 0.2"))
        await says(sandbox, "echo on", "on\n")


async def a_cancelled_create_leaves_nothing(backend: SandboxBackend) -> None:
    """Cancelled at once or a moment later, ``create`` makes no machine that stays."""
    labels = {**LABELS, "agentrl-rollout": secrets.token_hex(8)}
    for moment_sec in (0.0, 0.01, 0.1):
        task = asyncio.create_task(backend.create(SandboxSpec(), labels=labels, lifetime_sec=LIFETIME_SEC))
        await asyncio.sleep(moment_sec)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await (await task).close()  # it was faster
    for _ in range(100):
        left = await backend.list(labels)
        if not left:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"left behind: {left}")


CHECKS = checks(
    the_basics_are_there,
    machines_are_apart,
    machines_start_together,
    close_is_final_and_idempotent,
    machines_are_attached_to,
    machines_are_listed_until_closed,
    a_lifetime_ends,
    machines_are_kept_alive,
    a_cancelled_create_leaves_nothing,
)
