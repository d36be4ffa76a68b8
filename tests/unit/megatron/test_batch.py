import math

import pytest

from agentrl.api import TrainerError
from agentrl_megatron.batch import assemble


def total(rows, rollout_id):
    return sum(row.token_weight * row.trained for row in rows if row.sample.rollout_id == rollout_id)


def test_each_rollout_weighs_the_same_whatever_its_samples_and_lengths(make_group, make_sample):
    chains = (
        make_sample("g-0", trained=2, loss_weight=0.25),
        make_sample("g-0", trained=3, loss_weight=0.25, index=1),
        make_sample("g-0", trained=9, loss_weight=0.5, index=2),
    )
    rows = assemble([make_group("g", [1.0, 0.0], samples=chains)], advantage_std=True).rows
    assert len(rows) == 4
    assert math.isclose(total(rows, "g-0"), 0.5)
    assert math.isclose(total(rows, "g-1"), 0.5)


def test_all_samples_of_a_rollout_share_its_advantage(make_group, make_sample):
    chains = tuple(make_sample("g-0", loss_weight=0.5, index=i) for i in range(2))
    rows = assemble([make_group("g", [1.0, 0.0], samples=chains)], advantage_std=False).rows
    assert [row.advantage for row in rows] == [0.5, 0.5, -0.5]


def test_aborted_rollouts_and_uniform_groups_leave_the_batch_and_are_counted(make_group):
    groups = [
        make_group("mixed", [1.0, None, 0.0]),
        make_group("uniform", [1.0, 1.0]),
        make_group("alone", [1.0, None]),
        make_group("lost", [None, None]),
    ]
    batch = assemble(groups, advantage_std=True)
    assert {row.sample.rollout_id for row in batch.rows} == {"mixed-0", "mixed-2"}
    assert batch.metrics["groups_uniform"] == 2
    assert batch.metrics["groups_ungraded"] == 1
    assert batch.metrics["rollouts_trained"] == 2
    assert batch.metrics["samples_trained"] == 2
    assert batch.metrics["tokens_updated"] == 4 + 6


def test_without_spread_there_is_no_batch_and_no_advantage_to_report(make_group):
    batch = assemble([make_group("g", [0.0, 0.0])], advantage_std=True)
    assert batch.rows == ()
    assert "advantage_mean" not in batch.metrics


def test_a_rollout_that_sampled_nothing_takes_no_weight(make_group, make_sample):
    silent = (make_sample("g-0", prompt=4, trained=0),)
    rows = assemble([make_group("g", [0.0, 1.0], samples=silent)], advantage_std=True).rows
    assert [row.sample.rollout_id for row in rows] == ["g-1"]
    assert math.isclose(total(rows, "g-1"), 1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"logprobs": (0.0,)}, "differ in length"),
        ({"prompt": 0}, "nothing precedes it"),
        ({"loss_weight": 0.0}, "loss weight"),
        ({"loss_weight": float("nan")}, "loss weight"),
    ],
)
def test_a_sample_that_cannot_be_trained_is_an_error(make_group, make_sample, fields, message):
    broken = (make_sample("g-0", **fields),)
    with pytest.raises(TrainerError, match=message):
        assemble([make_group("g", [1.0, 0.0], samples=broken)], advantage_std=True)
