"""A machine for a block: labelled, recorded, there in spite of faults, and gone afterwards."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from leap import leap
from provider import Provider, until

from agentrl.errors import SandboxError, SandboxGone, SandboxRefused, SandboxThrottled, SandboxTransient
from agentrl.lease import KEY_LABEL, ROLLOUT_LABEL, RUN_LABEL, Limits
from agentrl.types import Layer, SandboxSpec

MINUTE = {"rollout_id": "a", "lifetime_sec": 60.0}


async def begin(lease, **options):
    """A block of which only the beginning happens."""
    block = lease.open(SandboxSpec(), **{**MINUTE, **options})
    machine = await block.__aenter__()
    machine.block = block
    return machine


async def test_a_lease_labels_records_and_closes(lease_on, ledger):
    provider = Provider()
    lease = lease_on(provider)
    async with lease.open(SandboxSpec(), **MINUTE) as machine:
        key = machine.labels[KEY_LABEL]
        assert machine.labels == {RUN_LABEL: "r1", ROLLOUT_LABEL: "a", KEY_LABEL: key}
        assert ledger.open_ids() == (machine.id,)
        assert ledger.read().open[machine.id].rollout_id == "a"
    assert provider.machines == {}
    assert ledger.open_ids() == ()
    await lease.aclose()


async def test_ending_twice_closes_no_file_of_others(lease_on, tmp_path):
    lease = lease_on(Provider())
    await lease.aclose()
    files = [(tmp_path / str(n)).open("w") for n in range(8)]  # They get the numbers that the lease had.
    await lease.aclose()
    for file in files:
        file.write("still open")
        file.close()


async def test_an_intention_is_on_disk_before_the_provider_is_asked(lease_on, ledger):
    provider = Provider()
    provider.gate.clear()
    lease = lease_on(provider)
    opening = asyncio.create_task(begin(lease))
    await until(lambda: provider.creating)
    [born] = ledger.read().intended.values()
    assert (born.run_id, born.rollout_id) == ("r1", "a")
    provider.gate.set()
    await opening
    assert ledger.read().intended == {}
    await lease.aclose()


async def test_the_lifetime_shrinks_while_a_machine_is_waited_for(lease_on):
    provider = Provider()
    lease = lease_on(provider, boot_concurrency=1)
    provider.gate.clear()
    first = asyncio.create_task(begin(lease))
    started = time.monotonic()
    second = asyncio.create_task(begin(lease, lifetime_sec=100.0))
    await until(lambda: provider.creating)
    await asyncio.sleep(0.05)
    provider.gate.set()
    await first
    lifetime_sec = (await second).lifetime_sec
    assert 100.0 - (time.monotonic() - started) <= lifetime_sec < 99.96
    await lease.aclose()


async def test_starts_are_bounded(lease_on):
    provider = Provider()
    lease = lease_on(provider, boot_concurrency=3)

    async def use(i):
        async with lease.open(SandboxSpec(), rollout_id=str(i), lifetime_sec=60):
            await asyncio.sleep(0)

    await asyncio.gather(*(use(i) for i in range(20)))
    assert provider.most_creating == 3
    assert provider.calls["create"] == 20
    await lease.aclose()


async def test_a_cancelled_start_still_counts_until_it_is_over(lease_on):
    provider = Provider()
    provider.gate.clear()
    lease = lease_on(provider, boot_concurrency=1)
    first = asyncio.create_task(begin(lease))
    await until(lambda: provider.creating)
    first.cancel()
    second = asyncio.create_task(begin(lease))
    for _ in range(10):
        await asyncio.sleep(0)
    assert provider.creating == 1
    provider.gate.set()
    await second
    await lease.aclose()
    assert provider.most_creating == 1
    assert provider.machines == {}


# --------------------------------------------------------------------------------------------------------- retries


async def test_transient_failures_are_retried_and_others_not(lease_on, waits):
    provider = Provider({"create": [SandboxTransient("reset"), SandboxTransient("again")]})
    lease = lease_on(provider, boot_retries=2)
    async with lease.open(SandboxSpec(), **MINUTE) as machine:
        assert machine.id == "m1"
    assert len(waits) == 2
    for error in (SandboxRefused("bad key"), SandboxError("unknown")):
        provider.faults["create"] = [error]
        with pytest.raises(type(error), match=str(error)):
            await begin(lease)
    assert len(waits) == 2
    await lease.aclose()


async def test_retries_end(lease_on, waits):
    provider = Provider({"create": [SandboxTransient(str(i)) for i in range(9)]})
    lease = lease_on(provider, boot_retries=2)
    with pytest.raises(SandboxTransient, match="2"):
        await begin(lease)
    assert len(provider.faults["create"]) == 6
    await lease.aclose()


async def test_being_told_to_slow_down_costs_no_attempt_and_brakes_everybody_once(lease_on, monkeypatch):
    brakes, now, provider = [], [1000.0], Provider({"create": [SandboxThrottled("slow down")] * 12})
    provider.gate.clear()

    def braked(error, attempt):
        brakes.append(attempt)
        provider.gate.clear()
        return 0.05

    monkeypatch.setattr("agentrl.lease.retries.retry_delay", braked)
    monkeypatch.setattr("agentrl.lease.retries.time", SimpleNamespace(monotonic=lambda: now[0]))
    lease = lease_on(provider, boot_retries=0)
    opening = asyncio.gather(*(begin(lease) for _ in range(6)))
    for answers in (0, 6, 12):
        await until(lambda: (provider.creating, provider.calls.get("create", 0)) == (6, answers))  # noqa: B023
        now[0] += 1.0
        provider.gate.set()
    assert len({machine.id for machine in await opening}) == 6
    assert brakes == [0, 1], "six answers to questions from before the brake count once"
    await lease.aclose()


async def test_patience_ends_with_what_was_waited_for(tmp_path, lease_on):
    provider = Provider({"create": [SandboxThrottled("429: 20 at most", 200.0)]})
    limits = Limits(tmp_path / "l", starting=1)
    lease = lease_on(provider, limits=limits)
    opening = asyncio.create_task(begin(lease))
    await until(lambda: not limits.pace.free())
    leap(100)
    with pytest.raises(SandboxThrottled, match=r"no sandbox for a within \d+ s: 429: 20 at most"):
        await opening
    await lease.aclose()


async def test_patience_with_a_full_account_names_the_settings(tmp_path, lease_on):
    lease = lease_on(Provider(), limits=Limits(tmp_path / "l", starting=1, live=1))
    await begin(lease)
    with pytest.raises(SandboxThrottled, match=r"SWE_MAX_SANDBOXES \(1\)"):
        await begin(lease, patience_sec=0.05)
    await lease.aclose()


async def test_baking_is_retried_like_creating(lease_on, waits):
    provider = Provider({"prepare": [SandboxTransient("503"), SandboxThrottled("429", 0.01)]})
    lease = lease_on(provider)
    async with lease.open(SandboxSpec(image="i", layers=(Layer("agent"),)), **MINUTE) as machine:
        assert machine.spec == SandboxSpec(image="i+agent")
    await lease.aclose()


async def test_nobody_waits_for_a_provider_that_has_been_dead_for_minutes(lease_on, waits, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("agentrl.lease.retries.time", SimpleNamespace(monotonic=lambda: now[0]))
    provider = Provider({"create": [SandboxTransient("connection refused")] * 400})
    lease = lease_on(provider, boot_concurrency=4, boot_retries=1)

    async def fails():
        now[0] += 10.0
        with pytest.raises(SandboxTransient) as caught:
            await begin(lease, lifetime_sec=10_000.0)
        return str(caught.value)

    for _ in range(20):
        assert await fails() == "connection refused"  # one after the other, each tries
    provider.gate.clear()
    trying = asyncio.create_task(fails())
    await until(lambda: provider.creating)
    assert "not waiting for it: connection refused" in await fails()
    provider.gate.set()
    await trying
    provider.faults["create"] = []
    async with lease.open(SandboxSpec(), **MINUTE):
        provider.faults["create"] = [SandboxTransient("a blip")]
        await begin(lease)  # it lives again
    await lease.aclose()


# --------------------------------------------------------------------------------------- what nobody knows the end of


@pytest.mark.parametrize("error", [SandboxError("no answer"), OSError("cut"), RuntimeError("a bug")], ids=repr)
async def test_a_machine_whose_creation_failed_all_the_same_is_found_and_deleted(lease_on, ledger, waits, error):
    provider = Provider({"create": [("made", error)]})
    lease = lease_on(provider)
    with pytest.raises(type(error), match=str(error)):
        await begin(lease)
    await until(lambda: not provider.machines)
    await lease.aclose()
    entries = ledger.read()
    assert (entries.open, entries.intended) == ({}, {})


async def test_what_could_not_be_looked_for_is_looked_for_at_the_end(lease_on, ledger, waits, monkeypatch):
    monkeypatch.setattr("agentrl.lease.doubts.LOOK_SEC", 3600.0)
    provider = Provider({"create": [("made", SandboxTransient("reset"))]})
    lease = lease_on(provider)
    async with lease.open(SandboxSpec(), **MINUTE):
        assert len(provider.machines) == 2
        assert len(ledger.read().intended) == 1
    await lease.aclose()
    assert provider.machines == {}
    assert ledger.read().intended == {}


async def test_the_end_looks_only_for_its_own(lease_on, waits, monkeypatch):
    monkeypatch.setattr("agentrl.lease.doubts.LOOK_SEC", 3600.0)
    provider = Provider()
    foreign = await provider.create(SandboxSpec(), labels={RUN_LABEL: "r1", KEY_LABEL: "x"}, lifetime_sec=60)
    provider.faults["create"] = [SandboxTransient("reset")]
    lease = lease_on(provider)
    async with lease.open(SandboxSpec(), **MINUTE):
        pass
    await lease.aclose()
    assert provider.calls["list"] == 1
    assert set(provider.machines) == {foreign.id}


# --------------------------------------------------------------------------------------------------------- closing


async def test_an_error_of_the_block_is_not_hidden_by_one_of_closing(lease_on, ledger, waits):
    provider = Provider({"delete": [SandboxTransient("close"), RuntimeError("a bug")] * 3})
    lease = lease_on(provider)
    with pytest.raises(ValueError, match="the block's own"):
        async with lease.open(SandboxSpec(), **MINUTE):
            raise ValueError("the block's own")
    await until(lambda: not provider.machines)  # in the background, after the block has given up
    await lease.aclose()
    assert ledger.open_ids() == ()


async def test_a_machine_that_cannot_be_closed_stays_open_in_the_ledger_and_keeps_its_place(tmp_path, lease_on, ledger):
    provider = Provider({"delete": [SandboxError("500")] * 10_000})
    limits = Limits(tmp_path / "l", starting=1, live=1)
    lease = lease_on(provider, limits=limits)
    lease.hurry()
    async with lease.open(SandboxSpec(), **MINUTE) as machine:
        pass
    assert limits.live.try_acquire() is None
    await lease.aclose()
    assert ledger.open_ids() == (machine.id,)


async def test_a_machine_that_is_gone_is_closed(lease_on, ledger):
    provider = Provider({"delete": [SandboxGone("404")]})
    lease = lease_on(provider)
    async with lease.open(SandboxSpec(), **MINUTE):
        pass
    assert ledger.open_ids() == ()
    await lease.aclose()


async def test_cancelling_while_closing_still_closes(lease_on):
    provider = Provider()
    lease = lease_on(provider)

    async def use():
        async with lease.open(SandboxSpec(), **MINUTE):
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
    await lease.aclose()


async def test_aclose_closes_what_is_open(lease_on):
    provider = Provider()
    lease = lease_on(provider)
    await asyncio.gather(*(begin(lease) for _ in range(3)))
    assert len(provider.machines) == 3
    await lease.aclose()
    assert provider.machines == {}


async def test_a_hurry_gives_each_close_one_chance_of_seconds(lease_on, ledger, monkeypatch):
    monkeypatch.setattr("agentrl.lease.hurry.HURRY_SEC", 0.05)
    provider = Provider()
    lease = lease_on(provider)
    _, slow = await begin(lease), await begin(lease)
    stuck = asyncio.Event()
    slow.close = stuck.wait
    closing = asyncio.create_task(lease.aclose())
    await until(lambda: ledger.open_ids() == (slow.id,))
    assert not closing.done()
    lease.hurry()
    await closing
    assert ledger.open_ids() == (slow.id,)


async def test_a_cancelled_end_hurries_and_passes_the_cancellation_on(lease_on, monkeypatch):
    monkeypatch.setattr("agentrl.lease.hurry.HURRY_SEC", 0.05)
    provider = Provider()
    lease = lease_on(provider)
    provider.gate.clear()
    opening = asyncio.create_task(begin(lease))
    await until(lambda: provider.creating)
    opening.cancel()
    closing = asyncio.create_task(lease.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert provider.machines == {}
    assert provider.creating == 0, "a creation that takes too long is cancelled"
