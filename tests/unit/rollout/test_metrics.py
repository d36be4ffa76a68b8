"""The numbers of an iteration."""

from dataclasses import replace

from rollouts import two_turns

from agentrl.outcomes import ExitStatus
from agentrl.rollout.metrics import iteration_metrics, scalars
from agentrl.types import Group


def groups():
    hard = replace(two_turns("i0-g1-r0", reward=0.0, status=ExitStatus.UNSOLVED), level="level-2")
    lost = two_turns("i0-g0-r1", reward=None, status=ExitStatus.SANDBOX_LOST)
    return [Group("i0-g0", "a", (two_turns("i0-g0-r0"), lost)), Group("i0-g1", "b", (hard,))]


def test_reward_is_the_mean_over_what_was_graded():
    metrics = iteration_metrics(0, groups(), {}, {})
    assert metrics["reward"] == 0.5
    assert metrics["reward_by_level"] == {"level-1": 1.0, "level-2": 0.0}
    assert metrics["rollouts_graded"] == 2


def test_aborted_rollouts_are_counted_by_cause_and_nowhere_else():
    metrics = iteration_metrics(0, groups(), {}, {})
    assert metrics["rollouts_aborted"] == {"sandbox_lost": 1}
    assert metrics["samples"] == 2
    assert metrics["tokens_sampled"] == metrics["tokens_trained"] == 10


def test_without_a_graded_rollout_there_is_no_reward_at_all():
    lost = two_turns("i0-g0-r0", reward=None, status=ExitStatus.SANDBOX_LOST)
    metrics = iteration_metrics(0, [Group("i0-g0", "a", (lost,))], {}, {})
    assert "reward" not in metrics
    assert "reward_by_level" not in metrics


def test_the_trainers_numbers_and_phases_are_kept():
    metrics = iteration_metrics(3, groups(), {"logprob_abs_diff": 1e-5}, {"rollout": 1.0, "train": 2.0})
    assert metrics["iteration"] == 3
    assert metrics["logprob_abs_diff"] == 1e-5
    assert metrics["seconds"] == {"rollout": 1.0, "train": 2.0}


def test_scalars_flatten_nested_numbers():
    assert scalars({"reward": 1, "by": {"level-1": 0.5}, "name": "x"}) == {"reward": 1.0, "by/level-1": 0.5}
