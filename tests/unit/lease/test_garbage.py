from __future__ import annotations

import pytest
from provider import Provider

from agentrl.errors import SandboxError, SandboxTransient
from agentrl.lease import KEY_LABEL, ROLLOUT_LABEL, RUN_LABEL, Ledger, collect_garbage
from agentrl.types import SandboxSpec


@pytest.fixture
async def provider():
    made = Provider()
    for age, labels in ((100.0, {RUN_LABEL: "dead"}), (50.0, {RUN_LABEL: "alive"}), (99.0, {"somebody": "else's"})):
        machine = await made.create(SandboxSpec(), labels=labels, lifetime_sec=60)
        machine.created_at -= age
    return made


async def test_a_run_is_cleaned_up_and_nothing_else(provider):
    found = await collect_garbage(provider, runs=["dead"], dry_run=True)
    assert [garbage.id for garbage in found] == ["m1"]
    assert len(provider.machines) == 3
    await collect_garbage(provider, runs=["dead"])
    assert set(provider.machines) == {"m2", "m3"}


async def test_an_age_counts_for_every_run_but_those_excepted(provider):
    assert await collect_garbage(provider, older_sec=1000.0) == []
    assert [garbage.id for garbage in await collect_garbage(provider, older_sec=49.0, except_runs=["dead"])] == ["m2"]
    assert await collect_garbage(provider, runs=["dead"], older_sec=1000.0) == []
    assert [garbage.id for garbage in await collect_garbage(provider, older_sec=49.0)] == ["m1"]
    assert set(provider.machines) == {"m3"}


async def test_failures_are_told_and_do_not_stop_it(provider, waits, tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", "dead")
    ledger.created("m1", rollout_id="r")
    provider.faults["delete"] = [SandboxError("500"), None]
    failed, done = await collect_garbage(provider, older_sec=49.0, ledgers=[ledger])
    assert (failed.id, failed.error) == ("m1", "500")
    assert (done.id, done.error) == ("m2", "")
    assert ledger.open_ids() == ("m1",)
    provider.faults["delete"] = [SandboxTransient("503"), SandboxTransient("503")]
    [done] = await collect_garbage(provider, runs=["dead"], ledgers=[ledger])
    assert done.error == ""
    assert ledger.open_ids() == ()
    ledger.close()


async def test_ledgers_know_what_lists_miss_and_learn_what_is_gone(provider, tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", "dead")
    ledger.created("unlisted", rollout_id="r")
    ledger.intended("never", rollout_id="r")
    ledger.intended("died half-way", rollout_id="i0-g0-r1")
    labels = {RUN_LABEL: "dead", ROLLOUT_LABEL: "i0-g0-r1", KEY_LABEL: "died half-way"}
    half = await provider.create(SandboxSpec(), labels=labels, lifetime_sec=60)
    found = await collect_garbage(provider, runs=["dead"], ledgers=[ledger])
    assert {(g.id, g.rollout_id, g.listed) for g in found} == {
        ("m1", "", True),
        (half.id, "i0-g0-r1", True),
        ("unlisted", "r", False),
    }
    entries = ledger.read()
    assert (entries.open, entries.intended) == ({}, {})
    ledger.close()
