import asyncio

import pytest

from agentrl.errors import SandboxError, SandboxRefused, SandboxThrottled, SandboxTransient
from agentrl.lease import ROLLOUT_LABEL, RUN_LABEL, Lease, Ledger, collect_garbage
from agentrl.lease.lease import BACKOFF_CAP_SEC, retry_delay
from agentrl.types import SandboxInfo, SandboxSpec


class Provider:
    """A provider's edge: machines that exist until closed, with faults to order."""

    def __init__(self, *, create_errors=(), close_errors=()):
        self.create_errors, self.close_errors = list(create_errors), list(close_errors)
        self.machines = {}
        self.creating = self.most_creating = self.creations = self.closes = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, spec, *, labels, lifetime_sec):
        self.creating += 1
        self.most_creating = max(self.most_creating, self.creating)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.create_errors:
                raise self.create_errors.pop(0)
            self.creations += 1
            machine = Machine(self, f"m{self.creations}", dict(labels), self.creations)
            self.machines[machine.id] = machine
            return machine
        finally:
            self.creating -= 1

    async def list(self, labels):
        return [
            SandboxInfo(m.id, m.labels, m.created_at)
            for m in self.machines.values()
            if labels.items() <= m.labels.items()
        ]

    async def delete(self, sandbox_id):
        machine = self.machines.get(sandbox_id)
        if machine is not None:
            await machine.close()


class Machine:
    def __init__(self, provider, machine_id, labels, created_at):
        self.provider, self.id, self.labels, self.created_at = provider, machine_id, labels, created_at

    async def close(self):
        await asyncio.sleep(0)
        self.provider.closes += 1
        if self.provider.close_errors:
            raise self.provider.close_errors.pop(0)
        self.provider.machines.pop(self.id, None)


@pytest.fixture
def waits(monkeypatch):
    """The waiting between attempts, taken note of instead of done."""
    noted = []
    sleep = asyncio.sleep

    async def note(delay):
        if delay:
            noted.append(delay)
        await sleep(0)

    monkeypatch.setattr("agentrl.lease.lease.asyncio.sleep", note)
    return noted


def lease_on(provider, tmp_path, **options):
    return Lease(provider, run_id="r1", ledger=tmp_path / "deep" / "ledger.jsonl", **options)


async def test_a_lease_labels_records_and_closes(tmp_path):
    provider = Provider()
    lease = lease_on(provider, tmp_path)
    async with lease.open(SandboxSpec(), rollout_id="a", lifetime_sec=60) as machine:
        assert machine.labels == {RUN_LABEL: "r1", ROLLOUT_LABEL: "a"}
        assert Ledger(tmp_path / "deep" / "ledger.jsonl").open_ids() == (machine.id,)
    assert provider.machines == {}
    assert Ledger(tmp_path / "deep" / "ledger.jsonl").open_ids() == ()


async def test_starts_are_bounded(tmp_path):
    provider = Provider()
    lease = lease_on(provider, tmp_path, boot_concurrency=3)

    async def use(i):
        async with lease.open(SandboxSpec(), rollout_id=str(i), lifetime_sec=60):
            await asyncio.sleep(0)

    await asyncio.gather(*(use(i) for i in range(20)))
    assert provider.most_creating == 3
    assert provider.creations == 20


async def test_a_cancelled_start_still_counts_until_it_is_over(tmp_path):
    provider = Provider()
    provider.gate.clear()
    lease = lease_on(provider, tmp_path, boot_concurrency=1)
    first = asyncio.create_task(lease.open(SandboxSpec(), rollout_id="1", lifetime_sec=60).__aenter__())
    while not provider.creating:
        await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(lease.open(SandboxSpec(), rollout_id="2", lifetime_sec=60).__aenter__())
    for _ in range(10):
        await asyncio.sleep(0)
    assert provider.creating == 1
    provider.gate.set()
    await (await second).close()
    await lease.aclose()
    assert provider.most_creating == 1
    assert provider.machines == {}


async def test_transient_failures_are_retried_and_others_not(tmp_path, waits):
    provider = Provider(create_errors=[SandboxTransient("reset"), SandboxThrottled("slow down", 7.0)])
    lease = lease_on(provider, tmp_path, boot_retries=2)
    async with lease.open(SandboxSpec(), rollout_id="a", lifetime_sec=60) as machine:
        assert machine.id == "m1"
    assert len(waits) == 2
    assert waits[1] >= 7.0
    for error in (SandboxRefused("bad key"), SandboxError("unknown")):
        provider.create_errors = [error]
        with pytest.raises(type(error), match=str(error)):
            await lease.open(SandboxSpec(), rollout_id="b", lifetime_sec=60).__aenter__()
    assert len(waits) == 2


async def test_retries_end(tmp_path, waits):
    provider = Provider(create_errors=[SandboxTransient(str(i)) for i in range(9)])
    with pytest.raises(SandboxTransient, match="2"):
        await (
            lease_on(provider, tmp_path, boot_retries=2)
            .open(SandboxSpec(), rollout_id="a", lifetime_sec=60)
            .__aenter__()
        )
    assert len(provider.create_errors) == 6


async def test_a_creation_cancelled_at_any_step_leaves_no_machine(tmp_path):
    for steps in range(12):
        provider = Provider()
        lease = lease_on(provider, tmp_path)

        async def use(lease=lease):
            async with lease.open(SandboxSpec(), rollout_id="a", lifetime_sec=60):
                await asyncio.sleep(0)

        task = asyncio.create_task(use())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await lease.aclose()
        assert provider.machines == {}, steps
        assert Ledger(tmp_path / "deep" / "ledger.jsonl").open_ids() == ()


async def test_an_error_of_the_block_is_not_hidden_by_one_of_closing(tmp_path, waits):
    provider = Provider(close_errors=[SandboxTransient("close")] * 99)
    with pytest.raises(ValueError, match="the block's own"):
        async with lease_on(provider, tmp_path).open(SandboxSpec(), rollout_id="a", lifetime_sec=60) as machine:
            raise ValueError("the block's own")
    assert provider.closes > 1
    assert Ledger(tmp_path / "deep" / "ledger.jsonl").open_ids() == (machine.id,)


async def test_closing_is_retried(tmp_path, waits):
    provider = Provider(close_errors=[SandboxTransient("1"), OSError("2")])
    async with lease_on(provider, tmp_path).open(SandboxSpec(), rollout_id="a", lifetime_sec=60):
        pass
    assert provider.machines == {}
    assert Ledger(tmp_path / "deep" / "ledger.jsonl").open_ids() == ()


async def test_cancelling_while_closing_still_closes(tmp_path):
    provider = Provider()
    lease = lease_on(provider, tmp_path)

    async def use():
        async with lease.open(SandboxSpec(), rollout_id="a", lifetime_sec=60):
            inside.set()
            await asyncio.sleep(0)

    inside = asyncio.Event()
    task = asyncio.create_task(use())
    await inside.wait()
    while provider.machines and not task.done():
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.machines == {}


async def test_aclose_closes_what_is_open(tmp_path):
    provider = Provider()
    lease = lease_on(provider, tmp_path)
    blocks = [lease.open(SandboxSpec(), rollout_id=str(i), lifetime_sec=60) for i in range(3)]
    await asyncio.gather(*(block.__aenter__() for block in blocks))
    assert len(provider.machines) == 3
    await lease.aclose()
    assert provider.machines == {}


def test_delays_are_jittered_and_bounded():
    error = SandboxTransient("x")
    delays = [retry_delay(error, attempt) for attempt in range(40) for _ in range(5)]
    assert all(0 <= delay <= BACKOFF_CAP_SEC for delay in delays)
    assert len(set(delays)) > 100


def test_a_ledger_survives_torn_lines_and_several_writers(tmp_path):
    path = tmp_path / "ledger.jsonl"
    one, other = Ledger(path), Ledger(path)
    one.created("a", rollout_id="1")
    with path.open("ab") as file:
        file.write(b'{"event": "created", "id": "to')
    other.created("b", rollout_id="2")
    one.closed("a")
    assert other.open_ids() == ("b",)
    assert len(path.read_bytes().split()) > 3


async def test_garbage_is_what_the_run_left_and_old_enough(monkeypatch):
    provider = Provider()
    monkeypatch.setattr("agentrl.lease.garbage.time.time", lambda: 100.0)
    for labels in ({RUN_LABEL: "dead"}, {RUN_LABEL: "alive"}, {"somebody": "else's"}):
        await provider.create(SandboxSpec(), labels=labels, lifetime_sec=60)
    found = await collect_garbage(provider, run_id="dead", dry_run=True)
    assert [info.id for info in found] == ["m1"]
    assert len(provider.machines) == 3
    await collect_garbage(provider, run_id="dead")
    assert set(provider.machines) == {"m2", "m3"}
    assert await collect_garbage(provider, older_sec=99.0) == []
    assert [info.id for info in await collect_garbage(provider, older_sec=98.0)] == ["m2"]
    assert set(provider.machines) == {"m3"}
    with pytest.raises(ValueError, match="run or an age"):
        await collect_garbage(provider)


async def test_garbage_collection_goes_on_after_a_failure():
    provider = Provider(close_errors=[SandboxError("first")])
    for _ in range(3):
        await provider.create(SandboxSpec(), labels={RUN_LABEL: "dead"}, lifetime_sec=60)
    with pytest.raises(SandboxError, match="first"):
        await collect_garbage(provider, run_id="dead")
    assert set(provider.machines) == {"m1"}
