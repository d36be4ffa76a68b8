"""A machine that dies while it grades, whenever that is, leaves no verdict."""

from __future__ import annotations

import pytest
from mortal import Mortal
from repair import FIX, SUBMIT, bash

from agentrl.api import Outcome

POINTS = 10


def mortal(bench, last=None):
    """Every machine but the agent's, which is the first, dies at that call; the list of them."""
    create, made = bench.machines.create, []

    async def mortals(*args, **options):
        made.append(Mortal(await create(*args, **options), last if made else None))
        return made[-1]

    bench.machines.create = mortals
    return made


async def calls_of_a_grading(bench):
    async with bench([FIX, SUBMIT]) as b:
        made = mortal(b)
        assert (await b.roll()).reward == 1.0
    return made[1].calls


async def test_killed_at_ten_points_it_is_aborted_ten_times(bench):
    total = await calls_of_a_grading(bench)
    points = sorted({1 + round(i * (total - 2) / (POINTS - 1)) for i in range(POINTS)})
    assert len(points) == POINTS
    for point in points:
        async with bench([FIX, SUBMIT]) as b:
            mortal(b, point)
            rollout = await b.roll()
        assert (rollout.outcome, rollout.reward, rollout.grade) == (Outcome.ABORTED, None, None), (point, rollout)
        assert rollout.message.startswith("grade: "), rollout.message


@pytest.mark.parametrize("broken", ["rm -rf .git", "rm -rf .git && touch .git", "rm -rf .git/objects/*"])
async def test_work_that_the_agent_made_unreadable_is_graded_zero(bench, broken):
    async with bench([bash(broken), SUBMIT]) as b:
        rollout = await b.roll()
    assert (rollout.exit_status, rollout.reward) == ("work_unreadable", 0.0), rollout.message
    assert rollout.samples
