"""Machines that are there before anybody asks."""

from __future__ import annotations

import asyncio

import pytest
from provider import Provider, until

from agentrl.errors import SandboxTransient
from agentrl.lease import ROLLOUT_LABEL, Limits
from agentrl.types import Layer, Resources, SandboxSpec

A, B, C = (SandboxSpec(image=name, layers=(Layer("agent"),), reach=(80,)) for name in "abc")
LIFE_SEC = 60.0


@pytest.fixture
def warm_on(lease_on):
    return lambda provider, size=2, **options: lease_on(provider, warm=size, warm_lifetime_sec=LIFE_SEC, **options)


def opened(lease, spec, **options):
    return lease.open(spec, **{"rollout_id": "r", "lifetime_sec": LIFE_SEC, **options})


async def idle(lease, count):
    """Until so many machines wait for somebody."""
    await until(lambda: len(lease._warm._idle) == count)


async def test_what_was_announced_is_there_and_what_was_not_is_made(warm_on, ledger):
    provider = Provider()
    lease = warm_on(provider)
    lease.warm([A, A, B])
    await idle(lease, 2)
    async with opened(lease, A) as hit:
        assert hit.labels[ROLLOUT_LABEL] == "warm"
        assert hit.spec == SandboxSpec(image="a+agent", reach=(80,))
        assert hit.lifetime_sec > LIFE_SEC
        async with opened(lease, B):
            assert lease.counts == {"hits": 1, "misses": 1}
    assert hit.id not in provider.machines
    await lease.aclose()
    assert provider.machines == {}
    assert ledger.open_ids() == ()


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(image="a", layers=(Layer("agent"),), reach=(81,)),
        SandboxSpec(image="a", layers=(Layer("other"),), reach=(80,)),
        SandboxSpec(image="a", layers=(Layer("agent"),), reach=(80,), resources=Resources(cpus=2)),
        SandboxSpec(image="a", layers=(Layer("agent"),), reach=(80,), env={"A": "1"}),
        SandboxSpec(image="a", layers=(Layer("agent"),), reach=(80,), network=True),
    ],
    ids=["reach", "layers", "resources", "env", "network"],
)
async def test_only_what_is_exactly_so_will_do(warm_on, spec):
    provider = Provider()
    lease = warm_on(provider, 1)
    lease.warm([A])
    await idle(lease, 1)
    async with opened(lease, spec) as machine:
        assert machine.labels[ROLLOUT_LABEL] == "r"
    assert lease.counts == {"hits": 0, "misses": 1}
    await lease.aclose()


async def test_one_that_died_or_would_die_too_early_is_not_handed_out(warm_on):
    provider = Provider()
    lease = warm_on(provider)
    lease.warm([A, A])
    await idle(lease, 2)
    async with opened(lease, A, lifetime_sec=10_000.0) as machine:
        assert machine.labels[ROLLOUT_LABEL] == "r"
    dead, *_ = provider.machines.values()
    dead.dead = True
    async with opened(lease, A) as machine:
        assert machine is not dead
        assert machine.labels[ROLLOUT_LABEL] == "warm"
    await until(lambda: dead.id not in provider.machines)
    await lease.aclose()


async def test_a_change_of_plan_closes_what_nobody_needs(warm_on, monkeypatch):
    monkeypatch.setattr("agentrl.lease.warm.GRACE_SEC", 0.0)
    provider = Provider()
    lease = warm_on(provider)
    lease.warm([A, B])
    await idle(lease, 2)
    lease.warm([B, C])
    await until(lambda: {m.spec.image for m in provider.machines.values()} == {"b+agent", "c+agent"})
    assert provider.calls["create"] == 3
    lease.warm([])
    await until(lambda: not provider.machines)
    await lease.aclose()


async def test_who_has_just_begun_still_gets_what_waits_for_nobody_else(warm_on, monkeypatch):
    monkeypatch.setattr("agentrl.lease.warm.CHECK_SEC", 0.01)
    provider = Provider()
    lease = warm_on(provider, 1)
    lease.warm([A])
    await idle(lease, 1)
    lease.warm([B])
    await asyncio.sleep(0.05)
    async with opened(lease, A):
        assert lease.counts["hits"] == 1
        await until(lambda: any(m.spec.image == "b+agent" for m in provider.machines.values()))
    await lease.aclose()


async def test_real_rollouts_come_first(tmp_path, warm_on):
    provider = Provider()
    lease = warm_on(provider, limits=Limits(tmp_path / "l", starting=4, live=3))
    lease.warm([A, A])
    await idle(lease, 2)
    async with opened(lease, C), opened(lease, C), opened(lease, C):
        assert {m.spec.image for m in provider.machines.values()} == {"c+agent"}
        lease.warm([B, B])
        await asyncio.sleep(0.02)
        assert len(provider.machines) == 3
    assert provider.most_alive == 3
    await lease.aclose()
    assert provider.machines == {}


async def test_a_place_is_given_back_to_another_process_that_waits(tmp_path, warm_on, lease_on, monkeypatch):
    monkeypatch.setattr("agentrl.lease.warm.CHECK_SEC", 0.01)
    provider = Provider()
    lease = warm_on(provider, 1, limits=Limits(tmp_path / "l", starting=4, live=1))
    other = lease_on(provider, limits=Limits(tmp_path / "l", starting=4, live=1))
    lease.warm([A])
    await idle(lease, 1)
    async with opened(other, B) as machine:
        await asyncio.sleep(0.05)
        assert list(provider.machines.values()) == [machine]
    await other.aclose()
    await lease.aclose()


@pytest.mark.parametrize("error", [SandboxTransient("503"), RuntimeError("a bug")], ids=repr)
@pytest.mark.parametrize("what", ["create", "prepare"])
async def test_failures_pause_it_and_reach_nobody(warm_on, monkeypatch, what, error):
    monkeypatch.setattr("agentrl.lease.warm.CHECK_SEC", 0.01)
    provider = Provider({what: [error] * 2})
    lease = warm_on(provider, 1, boot_retries=0)
    lease.warm([A])
    await until(lambda: provider.calls.get(what))
    lease.warm([A])
    await asyncio.sleep(0.05)
    assert provider.calls[what] == 1
    provider.faults[what] = []
    async with opened(lease, A):
        assert lease.counts["hits"] == 0
    await lease.aclose()
    assert provider.machines == {}


async def test_the_end_takes_those_under_way_along(warm_on, ledger):
    provider = Provider()
    provider.gate.clear()
    lease = warm_on(provider)
    lease.warm([A, B])
    await until(lambda: provider.creating == 2)
    closing = asyncio.create_task(lease.aclose())
    await asyncio.sleep(0)
    provider.gate.set()
    await closing
    assert provider.machines == {}
    assert ledger.open_ids() == ()
    assert lease.counts == {"hits": 0, "misses": 0}
