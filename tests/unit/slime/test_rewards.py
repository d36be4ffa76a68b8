"""Advantages from slime's samples: a rollout counts once, and one without verdict not at all."""

from __future__ import annotations

from argparse import Namespace

import pytest
from slime_stand_in import Sample

from agentrl_slime.rewards import fill_missing_rewards, keep_mixed_group, post_process_rewards

GRPO = Namespace(advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=False)


def sample(group: int, rollout: int, reward: float | None) -> Sample:
    return Sample(group_index=group, index=rollout, rollout_id=rollout, reward=reward)


def test_a_rollout_of_many_samples_counts_once():
    samples = [sample(0, 0, 1.0)] * 3 + [sample(0, 1, 0.0)]
    raw, used = post_process_rewards(GRPO, samples)
    assert raw == [1.0, 1.0, 1.0, 0.0]
    assert used == [0.5, 0.5, 0.5, -0.5]


def test_groups_are_centred_apart_however_their_samples_lie():
    samples = [sample(0, 0, 1.0), sample(1, 2, 1.0), sample(0, 1, 0.0), sample(1, 3, 1.0)]
    assert post_process_rewards(GRPO, samples)[1] == [0.5, 0.0, -0.5, 0.0]


def test_what_has_no_verdict_moves_nobody():
    graded = [sample(0, 0, 1.0), sample(0, 1, 0.0), sample(0, 2, 0.0)]
    alone = post_process_rewards(GRPO, graded)[1]
    raw, used = post_process_rewards(GRPO, [*graded, sample(0, 3, None)])
    assert used == [*alone, 0.0]
    assert raw[3] == pytest.approx(1 / 3)


def test_the_deviation_is_the_one_that_slime_divides_by():
    args = Namespace(advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True)
    _, used = post_process_rewards(args, [sample(0, 0, 1.0), sample(0, 1, 0.0)])
    assert used == pytest.approx([0.5 / (0.5**0.5 + 1e-6), -0.5 / (0.5**0.5 + 1e-6)])
    assert post_process_rewards(args, [sample(0, 0, 1.0)])[1] == [0.0]


def test_estimators_without_groups_get_the_reward_itself():
    args = Namespace(advantage_estimator="ppo", rewards_normalization=True, grpo_std_normalization=True)
    assert post_process_rewards(args, [sample(0, 0, 0.25), sample(0, 1, None)]) == ([0.25, 0.25], [0.25, 0.0])


@pytest.mark.parametrize(
    ("rewards", "kept"), [((1.0, 0.0), True), ((1.0, 1.0), False), ((1.0, None), False), ((None, None), False)]
)
def test_a_group_teaches_when_its_verdicts_differ(rewards: tuple, kept: bool):
    group = [[sample(0, i, reward), sample(0, i, reward)] for i, reward in enumerate(rewards)]
    assert keep_mixed_group(GRPO, group) is kept


def test_filling_leaves_the_group_mean_and_says_so():
    first, second, missing = sample(0, 0, 1.0), sample(0, 1, 0.0), sample(0, 2, None)
    lost = sample(1, 3, None)
    fill_missing_rewards(GRPO, [[[first], [second], [missing]], [[lost]]])
    assert (first.reward, second.reward, missing.reward, lost.reward) == (1.0, 0.0, 0.5, 0.0)
    assert "reward_missing" not in first.metadata
    assert missing.metadata["reward_missing"]
