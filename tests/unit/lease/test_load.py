"""Many at once, every fault, cancelled at any moment: bounded, and nothing is left."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from provider import Provider

from agentrl.errors import AgentrlError, SandboxError, SandboxGone, SandboxRefused, SandboxThrottled, SandboxTransient
from agentrl.lease import KEY_LABEL, Lease, Ledger, Limits
from agentrl.types import SandboxSpec

FAULTS = {
    "refused": SandboxRefused("401"),
    "transient": SandboxTransient("503"),
    "throttled": SandboxThrottled("429", 0.0),
    "unknown": SandboxError("no answer"),
    "unknown, but made": ("made", SandboxError("no answer")),
    "transient, but made": ("made", SandboxTransient("reset after the request")),
    "a bug": RuntimeError("Body of the request is None"),
}
CLOSING = {
    "500": SandboxError("500"),
    "gone": SandboxGone("404"),
    "503": SandboxTransient("503"),
    "cut": OSError("cut"),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for module in ("starter", "machines", "doubts", "retries"):
        monkeypatch.setattr(f"agentrl.lease.{module}.retry_delay", lambda error, attempt, **_: 0.0)
    for name in ("LOOK_SEC", "SURE_SEC"):
        monkeypatch.setattr(f"agentrl.lease.doubts.{name}", 0.01)


async def test_four_hundred_at_once_with_faults(tmp_path):
    chance = random.Random(7)
    sometimes = [None] * 12 + list(FAULTS.values())
    drawn = [chance.choice(sometimes) for _ in range(2000)]
    deletions = [chance.choice([None, None, None, *CLOSING.values()]) for _ in range(2000)]
    provider = Provider({"create": list(drawn), "delete": deletions})
    limits = Limits(tmp_path / "limits", starting=20, live=100)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    lease = Lease(provider, run_id="r", ledger=ledger.path, limits=limits, boot_retries=20)
    ended: list[str] = []

    async def use(i: int) -> None:
        try:
            async with lease.open(SandboxSpec(), rollout_id=str(i), lifetime_sec=300, urgent=i % 3 == 0):
                await asyncio.sleep(0.001 * (i % 7))
                ended.append("worked")
        except (AgentrlError, RuntimeError) as error:
            ended.append(type(error).__name__)

    users = [asyncio.create_task(use(i)) for i in range(400)]
    await asyncio.sleep(0.05)
    for user in users[::10]:
        user.cancel()
    await asyncio.wait(users)
    provider.faults["delete"] = []  # the end tries only so often
    await lease.aclose()
    assert provider.most_creating <= 20
    # A machine that was made in spite of an error is one too many until it is found.
    happened = drawn[: provider.calls["create"]]
    assert provider.most_alive <= 100 + happened.count(FAULTS["transient, but made"])
    assert provider.machines == {}
    entries = ledger.read()
    assert (entries.open, entries.intended) == ({}, {})
    assert ended.count("worked") > 250
    assert "SandboxTransient" not in ended, "what may be retried is retried"


async def test_four_hundred_at_once_without_faults_are_all_served(tmp_path):
    provider = Provider()
    lease = Lease(provider, run_id="r", ledger=tmp_path / "ledger.jsonl", boot_concurrency=64)
    inside, all_in = 0, asyncio.Event()

    async def use(i: int) -> None:
        nonlocal inside
        async with lease.open(SandboxSpec(), rollout_id=str(i), lifetime_sec=300):
            inside += 1
            if inside == 400:
                all_in.set()
            await all_in.wait()

    async with asyncio.timeout(120):
        await asyncio.gather(*(use(i) for i in range(400)))
    assert provider.most_alive == 400
    await lease.aclose()
    assert provider.machines == {}


@hypothesis_settings(max_examples=150)
@given(
    create=st.lists(st.sampled_from([None, *FAULTS]), max_size=4),
    delete=st.lists(st.sampled_from([None, *CLOSING]), max_size=3),
    steps=st.integers(1, 4),
    cancels=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    hurry=st.booleans(),
    live=st.integers(0, 2),
)
def test_whatever_fails_and_whenever_it_is_cancelled_nothing_is_left(
    tmp_path_factory, create, delete, steps, cancels, hurry, live
):
    folder = tmp_path_factory.mktemp("lease")

    async def scene():
        provider = Provider(
            {"create": [FAULTS.get(name) for name in create], "delete": [CLOSING.get(name) for name in delete]},
            steps=steps,
        )
        limits = Limits(folder / "limits", starting=1, live=live)
        lease = Lease(provider, run_id="r", ledger=folder / "ledger.jsonl", limits=limits)

        async def use(i):
            async with lease.open(SandboxSpec(), rollout_id=str(i), lifetime_sec=60):
                await asyncio.sleep(0)

        users = [asyncio.create_task(use(i)) for i in range(2)]
        for pause in cancels:
            for _ in range(pause):
                await asyncio.sleep(0)
            users[0].cancel()
        if hurry:
            lease.hurry()
        await asyncio.wait(users)
        for user in users:
            if not user.cancelled():
                user.exception()
        await lease.aclose()
        entries = Ledger(folder / "ledger.jsonl").read()
        left = list(provider.machines.values())
        # In a hurry a machine whose only deletion failed is left, and the ledger knows it.
        assert all(m.id in entries.open or m.labels[KEY_LABEL] in entries.intended for m in left)
        assert hurry or not (left or entries.open or entries.intended)
        again = Limits(folder / "limits", starting=1, live=live)
        for slots in (again.starting, again.live):
            slot = slots.try_acquire()
            assert slot is not None, "a place was never given back"
        again.close()

    asyncio.run(scene())
