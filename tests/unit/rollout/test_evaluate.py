from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import fmean

import pytest
from rollouts import two_turns

from agentrl.api import ExitStatus, Grade
from agentrl.rollout.evaluate import estimate, pass_at_k, results, wilson


@pytest.mark.parametrize(("attempts", "solved"), [(1, 0), (4, 1), (5, 3), (6, 6)])
def test_pass_at_k_is_the_share_of_draws_with_a_solved_attempt(attempts, solved):
    flags = [True] * solved + [False] * (attempts - solved)
    for k in range(1, attempts + 1):
        assert pass_at_k(attempts, solved, k) == pytest.approx(fmean(any(draw) for draw in combinations(flags, k)))


def test_wilsons_interval():
    # Newcombe 1998, table I: 81 of 263 and 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    low, high = wilson(1.0, 1)
    assert 0 < low < high == 1.0


def test_tasks_with_fewer_attempts_than_k_are_left_out():
    found = estimate([(4, 2), (1, 1)], 2)
    assert (found.tasks, found.value) == (1, pytest.approx(5 / 6))
    assert estimate([(1, 1)], 2) is None


def attempt(task, status, reward):
    grade = Grade(reward, status) if reward is not None else None
    return replace(two_turns(reward=reward, status=status), task_id=task, grade=grade)


def test_aborted_attempts_are_counted_and_not_graded():
    cut = replace(attempt("b", ExitStatus.SOLVED, 1.0), exit_status=ExitStatus.TURN_BUDGET)
    rollouts = [
        attempt("a", ExitStatus.SOLVED, 1.0),
        attempt("a", ExitStatus.SANDBOX_LOST, None),
        attempt("b", ExitStatus.UNSOLVED, 0.5),
        cut,
    ]
    found = results(rollouts, [1, 2])
    assert (found["tasks"], found["attempts"], found["graded"]) == (2, 4, 3)
    assert found["pass_at_k"]["1"]["value"] == pytest.approx((1 + 0.5) / 2)
    assert (found["pass_at_k"]["2"]["value"], found["pass_at_k"]["2"]["tasks"]) == (1.0, 1)
    assert found["causes"] == {"policy": 2, "sandbox": 1, "budget": 1}
    assert found["by_task"]["b"]["solved"] == 1
