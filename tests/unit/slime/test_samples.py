"""Rollouts as slime's samples: what slime's trainer will be told, token by token."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rollouts import two_turns
from slime_stand_in import Sample

from agentrl.api import ExitStatus, Outcome
from agentrl_slime.samples import aborted, evaluated, trained

BASE = Sample(group_index=3, index=12, prompt="ask", label="x", metadata={"instance_id": "row", "level": "easy"})


def spell(ids) -> str:
    return "|".join(map(str, ids))


def test_the_response_begins_with_the_first_sampled_token():
    rollout = two_turns()
    [sample] = trained(BASE, rollout, spell)
    [source] = rollout.samples
    assert sample.tokens == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert sample.response_length == 6
    assert sample.loss_mask == [1, 1, 0, 1, 1, 1]
    assert sample.rollout_log_probs == list(source.logprobs[3:])
    assert sample.response == "4|5|6|7|8|9"
    assert sample.weight_versions == ["1"]
    assert sample.status is Sample.Status.COMPLETED
    sample._validate_response_metadata_lengths()


def test_parts_of_one_rollout_share_its_id_and_its_whole_reward():
    rollout = two_turns()
    [source] = rollout.samples
    parts = tuple(replace(source, index=i, loss_weight=0.5, truncated=i == 1) for i in range(2))
    first, second = trained(BASE, replace(rollout, samples=parts), spell)
    assert first.rollout_id == second.rollout_id == 12
    assert (first.group_index, first.index, first.reward, second.reward) == (3, 12, 1.0, 1.0)
    assert [s.status for s in (first, second)] == [Sample.Status.COMPLETED, Sample.Status.TRUNCATED]
    first.tokens.append(0)
    first.metadata["mine"] = True
    assert len(second.tokens) == 9
    assert "mine" not in second.metadata


def test_an_id_that_slime_gave_is_kept():
    [sample] = trained(replace(BASE, rollout_id=5), two_turns(), spell)
    assert sample.rollout_id == 5


def test_a_truncated_rollout_is_truncated_everywhere():
    rollout = replace(two_turns(), outcome=Outcome.TRUNCATED)
    assert trained(BASE, rollout, spell)[0].status is Sample.Status.TRUNCATED
    assert evaluated(BASE, rollout)[0].status is Sample.Status.TRUNCATED


@pytest.mark.parametrize("evaluation", [False, True])
def test_no_verdict_is_no_number_that_could_be_mistaken_for_one(evaluation: bool):
    rollout = two_turns(reward=None, status=ExitStatus.SANDBOX_LOST)
    [sample] = evaluated(BASE, rollout) if evaluation else trained(BASE, rollout, spell)
    assert math.isnan(sample.reward) if evaluation else sample.reward is None
    assert sample.status is Sample.Status.ABORTED
    assert sample.remove_sample
    assert sample.metadata["abort_reason"] == "sandbox_lost"
    assert 0 < sample.response_length < len(sample.tokens)
    assert sum(sample.loss_mask) == 0
    sample._validate_response_metadata_lengths()


def test_a_rollout_with_nothing_to_train_is_left_out():
    [sample] = trained(BASE, replace(two_turns(), samples=()), spell)
    assert (sample.reward, sample.metadata["abort_reason"]) == (None, "nothing_to_train")


def test_the_sample_of_slime_itself_stays_as_it_was():
    before = replace(BASE, metadata=dict(BASE.metadata))
    trained(BASE, two_turns(), spell)
    evaluated(BASE, two_turns())
    aborted(BASE, "why")
    assert before == BASE
