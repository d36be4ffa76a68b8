from __future__ import annotations

import asyncio
from types import SimpleNamespace

from provider import Provider, until

from agentrl.errors import SandboxTransient
from agentrl.types import SandboxSpec


async def test_open_machines_are_kept_alive_whatever_goes_wrong(lease_on, ledger, caplog, monkeypatch):
    # Often, and yet none takes too long.
    monkeypatch.setattr("agentrl.lease.keeper.random", SimpleNamespace(uniform=lambda low, high: low / 1000))
    provider = Provider({"keep": [SandboxTransient("503"), RuntimeError("a bug"), SandboxTransient("503")]})
    provider.keep_alive_sec = 30.0
    lease = lease_on(provider)
    async with lease.open(SandboxSpec(), rollout_id="a", lifetime_sec=60) as machine:
        await until(lambda: machine.kept >= 6)
        told = [record for record in caplog.records if "could not be kept alive" in record.message]
        assert len(told) == 1, "a failure is logged when it begins"
        machine.dead = True
        await until(lambda: b'"gone"' in ledger.path.read_bytes())
        kept = machine.kept
        async with lease.open(SandboxSpec(), rollout_id="b", lifetime_sec=60) as second:
            await until(lambda: second.kept >= 3)
        assert machine.kept == kept, "what is gone is left alone"
    kept = second.kept
    await lease.aclose()
    await asyncio.sleep(0.05)
    assert second.kept == kept
    assert caplog.text.count("nobody closed it") == 1


async def test_machines_that_need_no_keeping_are_not_asked(lease_on):
    provider = Provider()
    lease = lease_on(provider)
    async with lease.open(SandboxSpec(), rollout_id="a", lifetime_sec=60):
        await asyncio.sleep(0.05)
    await lease.aclose()
    assert "keep" not in provider.calls
