"""Which sandboxes are started ahead, and that this changes nothing but the waiting."""

from __future__ import annotations

from dataclasses import replace

from provider import until
from repair import FIX, SUBMIT, repair_row

from agentrl.api import ExitStatus
from agentrl.lease import Lease
from agentrl.rollout.ahead import Ahead
from agentrl.rollout.one import RolloutId


async def test_an_agent_gets_a_sandbox_that_was_started_ahead(bench, tmp_path):
    async with bench([FIX, SUBMIT], AGENTRL_WARM="2") as b:
        lease = Lease(
            b.machines,
            run_id="test",
            ledger=tmp_path / "ledger.jsonl",
            warm=2,
            warm_lifetime_sec=b.parts.settings.sandbox_lifetime_sec,
        )
        b.parts = replace(b.parts, lease=lease)
        ahead = Ahead(b.parts)
        task = b.parts.task_format.read(repair_row())
        ahead.want(iter([task] * 5))
        await until(lambda: len(lease._warm._idle) == 2)
        warm = [b.machines.made.get_nowait() for _ in range(2)]
        rollout = await b.run_one(task, RolloutId(0, 0, 0), 1)
        assert rollout.exit_status is ExitStatus.SOLVED
        grading = b.machines.made.get_nowait()
        assert {machine.id for machine in warm}.isdisjoint({grading.id})
        assert ahead.counted() == {"warm": {"hits": 1, "misses": 0}}
        assert ahead.counted() == {"warm": {"hits": 0, "misses": 0}}
        await lease.aclose()


async def test_without_the_setting_nothing_is_announced_nor_counted(bench):
    async with bench([SUBMIT]) as b:
        ahead = Ahead(b.parts)

        def tasks():
            raise AssertionError("nobody looks at them")
            yield

        ahead.want(tasks())
        assert ahead.counted() == {}
