"""Many rollouts at once."""

import asyncio
from dataclasses import replace

import pytest
from rollouts import two_turns

from agentrl.outcomes import ExitStatus
from agentrl.rollout.pool import run_groups
from agentrl.types import Task

TASKS = [Task(name, "p", "fix it", "/testbed") for name in ("a", "b")]


async def pool(run_one, *, done=None, concurrency=8, finished=lambda rollout: None):
    return await run_groups(
        TASKS, iteration=3, group_size=3, concurrency=concurrency, run_one=run_one, done=done or {}, finished=finished
    )


async def solved(task, rollout_id, attempt):
    return replace(two_turns(str(rollout_id)), task_id=task.id, attempt=attempt)


async def test_groups_hold_their_own_rollouts_in_order():
    groups = await pool(solved)
    assert [g.task_id for g in groups] == ["a", "b"]
    assert [[r.id for r in g.rollouts] for g in groups] == [
        ["i3-g0-r0", "i3-g0-r1", "i3-g0-r2"],
        ["i3-g1-r0", "i3-g1-r1", "i3-g1-r2"],
    ]


async def test_no_more_than_the_bound_run_at_once():
    running, most = 0, 0

    async def one(task, rollout_id, attempt):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return await solved(task, rollout_id, attempt)

    await pool(one, concurrency=2)
    assert most == 2


async def test_what_the_journal_holds_is_not_made_again():
    made = []

    async def one(task, rollout_id, attempt):
        made.append(str(rollout_id))
        return await solved(task, rollout_id, attempt)

    old = replace(two_turns("i3-g0-r1"), message="from the journal")
    groups = await pool(one, done={"i3-g0-r1": old})
    assert groups[0].rollouts[1] is old
    assert "i3-g0-r1" not in made
    assert len(made) == 5


async def test_an_infrastructure_fault_is_tried_once_more_and_recorded_once():
    finished = []

    async def one(task, rollout_id, attempt):
        if str(rollout_id) == "i3-g0-r0" and attempt == 1:
            return replace(two_turns(str(rollout_id), reward=None, status=ExitStatus.SANDBOX_LOST))
        return await solved(task, rollout_id, attempt)

    groups = await pool(one, finished=finished.append)
    assert groups[0].rollouts[0].attempt == 2
    assert sorted(r.id for r in finished) == sorted(r.id for g in groups for r in g.rollouts)


async def test_a_verdict_is_never_tried_again():
    attempts = []

    async def one(task, rollout_id, attempt):
        attempts.append(attempt)
        return two_turns(str(rollout_id), reward=0.0, status=ExitStatus.UNSOLVED)

    await pool(one)
    assert attempts == [1] * 6


async def test_cancelling_the_pool_cancels_and_awaits_every_rollout():
    started, ended = asyncio.Event(), []

    async def one(task, rollout_id, attempt):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(str(rollout_id))

    running = asyncio.create_task(pool(one, concurrency=6))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended


async def test_those_who_wait_are_told_in_order_and_what_is_done_does_not_wait():
    told = []
    done = {"i3-g0-r1": two_turns("i3-g0-r1")}
    await run_groups(
        TASKS,
        iteration=3,
        group_size=2,
        concurrency=1,
        run_one=solved,
        done=done,
        finished=lambda rollout: None,
        waiting=lambda tasks: told.append("".join(task.id for task in tasks)),
    )
    assert told == ["bb", "b", ""]
