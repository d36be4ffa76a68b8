"""Every fault at every primitive: bounded, typed, named, run at most once, and nothing left."""

import asyncio

import pytest

from agentrl.api import SandboxError, SandboxGone, SandboxRefused, SandboxSpec, SandboxTransient

LIMIT_SEC = 120.0
# What a fault of the server is, how it is asked for, and what its message must name.
FAULTS = {
    "throttled": ({}, "slow down"),
    "throttled politely": ({"retry_after_sec": 1}, "slow down"),
    "quota": ({}, "maximum number"),
    "busy": ({"status": 503}, "injected"),
    "server error": ({"status": 500}, "injected"),
    "bad gateway in HTML": ({"status": 502}, ""),
    "unauthorized": ({}, "E2B_API_KEY"),
    "dropped": ({}, ""),
    "reset": ({}, ""),
    "cut": ({"after_bytes": 3}, ""),
    "vanish": ({"delay_sec": 0.05}, ""),
}
KINDS = {
    "throttled politely": "throttled",
    "busy": "error",
    "server error": "error",
    "bad gateway in HTML": "html",
}
# Faults that a primitive of this provider cannot have.
NOT_OF = {
    "create": {"cut", "vanish"},
    "list": {"cut", "vanish"},
    "delete": {"cut", "vanish"},
    "keep_alive": {"cut", "vanish"},
    "exec": {"quota"},
    "read": {"quota"},
    "write": {"quota", "cut"},
}
CASES = [(primitive, fault) for primitive, never in NOT_OF.items() for fault in FAULTS if fault not in never]


@pytest.fixture
async def sandbox(backend):
    return await backend.create(SandboxSpec(), labels={"agentrl-run": "m"}, lifetime_sec=300)


@pytest.mark.parametrize(("primitive", "fault"), CASES)
async def test_one_fault_is_survived_or_told(server, backend, sandbox, primitive, fault):
    options, words = FAULTS[fault]
    if primitive == "read":
        await sandbox.write_file("/tmp/in", b"x" * 200_000)  # too big to come with a command's answer
    server.faults.add(KINDS.get(fault, fault), primitive, **options)
    call = getattr(Calls(server, backend, sandbox), primitive)
    try:
        async with asyncio.timeout(LIMIT_SEC):
            await call()
    except SandboxError as error:
        assert words in str(error) and str(error), error
        if fault == "vanish":
            assert isinstance(error, SandboxGone), error
        if fault == "unauthorized":
            assert isinstance(error, SandboxRefused), error
    assert server.faults.spent, "the fault did not happen"
    server.faults.clear()
    await settled(server, backend, sandbox)


class Calls:
    """One use of each primitive; what can be checked about it is checked when it returns."""

    def __init__(self, server, backend, sandbox):
        self.server, self.backend, self.sandbox = server, backend, sandbox

    async def create(self):
        other = await self.backend.create(SandboxSpec(), labels={"agentrl-run": "m"}, lifetime_sec=300)
        await other.close()

    async def list(self):
        assert [info.id for info in await self.backend.list({"agentrl-run": "m"})] == [self.sandbox.id]

    async def delete(self):
        await self.sandbox.close()
        assert not self.server.machines

    async def keep_alive(self):
        await self.sandbox.keep_alive()

    async def exec(self):
        result = await self.sandbox.exec("echo ran >> /tmp/runs; cat /tmp/runs; exit 3", timeout_sec=60)
        assert (result.exit_code, result.stdout) == (3, b"ran\n"), "not what the command said"

    async def read(self):
        assert await self.sandbox.read_file("/tmp/in") == b"x" * 200_000

    async def write(self):
        await self.sandbox.write_file("/tmp/out", b"y" * 200_000)
        assert await self.sandbox.read_file("/tmp/out") == b"y" * 200_000


async def settled(server, backend, sandbox):
    """The command ran at most once, whatever was told; and then nothing is left, here or there."""
    if sandbox.id in server.machines:
        try:
            assert (await sandbox.read_file("/tmp/runs")) == b"ran\n", "it ran twice"
        except SandboxError:
            pass  # it never ran
    await backend.delete(sandbox.id)
    await backend.aclose()
    assert not server.machines, "machines were left"


@pytest.mark.parametrize("primitive", ["create", "list", "delete", "keep_alive"])
async def test_a_service_that_is_down_is_told(server, backend, sandbox, primitive):
    async with server.down():
        with pytest.raises(SandboxTransient):
            async with asyncio.timeout(LIMIT_SEC):
                await getattr(Calls(server, backend, sandbox), primitive)()
    await settled(server, backend, sandbox)
