"""A sandbox's lifetime is what its rollout has left, with a slack: not a constant."""

from __future__ import annotations

import asyncio
import logging

from leap import leap
from provider import until
from repair import FIX, SUBMIT

from agentrl.api import ExitStatus, SandboxThrottled


def noted(bench) -> list[float]:
    """The lifetimes that the backend is asked for."""
    lifetimes: list[float] = []
    create = bench.machines.create

    async def noting(spec, *, labels, lifetime_sec):
        lifetimes.append(lifetime_sec)
        return await create(spec, labels=labels, lifetime_sec=lifetime_sec)

    bench.machines.create = noting
    return lifetimes


async def test_both_sandboxes_of_a_rollout_die_when_it_must_be_over(bench):
    variables = {"SWE_ROLLOUT_GUARD_SEC": "3000", "SWE_SANDBOX_LIFETIME_SEC": "3100"}
    async with bench([FIX, SUBMIT], **variables) as b:
        lifetimes = noted(b)
        rollout = await b.roll()
    assert rollout.exit_status is ExitStatus.SOLVED
    agent, grading = lifetimes
    assert 3100.0 >= agent > grading > 100.0


async def test_a_rollout_that_gets_no_sandbox_says_what_it_waited_for(bench, caplog):
    caplog.set_level(logging.INFO)
    async with bench([FIX, SUBMIT], SWE_ROLLOUT_GUARD_SEC="1000") as b:

        async def throttled(spec, *, labels, lifetime_sec):
            raise SandboxThrottled("429: at most 20 sandboxes", 30.0)

        b.machines.create = throttled
        rolling = asyncio.create_task(b.roll())
        await until(lambda: "told to slow down" in caplog.text)
        leap(950)  # its patience is over, the rollout is not
        rollout = await rolling
    assert rollout.exit_status is ExitStatus.SANDBOX_FAILED
    assert "429: at most 20 sandboxes" in rollout.message
