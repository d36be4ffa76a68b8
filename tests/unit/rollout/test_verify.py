"""The replay check passes what was recorded and finds every single change to it."""

from dataclasses import replace

import pytest
from rollouts import two_turns

from agentrl.outcomes import ExitStatus
from agentrl.rollout.verify import Violation, verify


def with_sample(**changes):
    rollout = two_turns()
    return replace(rollout, samples=(replace(rollout.samples[0], **changes),))


def test_an_honest_rollout_passes_and_is_counted():
    report = verify([two_turns(), two_turns("i0-g0-r1", reward=None, status=ExitStatus.ENGINE_FAILED)])
    assert (report.rollouts, report.aborted, report.samples) == (2, 1, 1)
    assert report.tokens_sampled == report.tokens_trained == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": (1, 2, 3, 4, 55, 6, 7, 8, 9)}, "does not start with the ids"),
        ({"loss_mask": (0, 0, 1, 1, 1, 0, 1, 1, 1)}, "mask is 1 at 2"),
        ({"loss_mask": (0, 0, 0, 1, 1, 0, 1, 1, 0)}, "mask is 0 at 8"),
        ({"logprobs": (0.0,) * 9}, "log-probabilities"),
        ({"logprobs": (0.0,) * 8}, "differ in length"),
        ({"loss_weight": 0.5}, "sum to 0.5"),
        ({"reward": 0.0}, "not its rollout's"),
        ({"turn_ids": ("turn-0", "turn-9")}, "not recorded"),
    ],
)
def test_a_changed_sample_is_found(changes, words):
    with pytest.raises(Violation, match=words):
        verify([with_sample(**changes)])


def test_a_sampled_turn_that_nothing_trains_is_found():
    rollout = two_turns()
    short = replace(
        rollout.samples[0],
        tokens=rollout.samples[0].tokens[:5],
        loss_mask=rollout.samples[0].loss_mask[:5],
        logprobs=rollout.samples[0].logprobs[:5],
        turn_ids=("turn-0",),
    )
    with pytest.raises(Violation, match="never trained"):
        verify([replace(rollout, samples=(short,))])


def test_an_excluded_turn_is_counted_with_its_reason():
    rollout = two_turns()
    first, second = rollout.trajectory.turns
    sample = rollout.samples[0]
    kept = replace(sample, tokens=sample.tokens[:5], loss_mask=sample.loss_mask[:5], logprobs=sample.logprobs[:5])
    turns = (first, replace(second, trainable=False, excluded="abort"))
    rollout = replace(
        rollout,
        samples=(replace(kept, turn_ids=("turn-0",)),),
        trajectory=replace(rollout.trajectory, turns=turns),
    )
    assert verify([rollout]).excluded["abort"] == 1


def test_training_one_turn_twice_is_found():
    rollout = two_turns()
    half = replace(rollout.samples[0], loss_weight=0.5)
    with pytest.raises(Violation, match="trained 2 times"):
        verify([replace(rollout, samples=(half, replace(half, index=1)))])


def test_a_prompt_that_was_rendered_anew_is_found():
    rollout = two_turns()
    first, second = rollout.trajectory.calls
    calls = (first, replace(second, input_ids=(1, 2, 3, 44, 5, 6)))
    with pytest.raises(Violation, match="first difference at 3"):
        verify([replace(rollout, trajectory=replace(rollout.trajectory, calls=calls))])


def test_a_turn_without_a_recorded_call_is_found():
    rollout = two_turns()
    trajectory = replace(rollout.trajectory, calls=rollout.trajectory.calls[:1])
    with pytest.raises(Violation, match="no engine call"):
        verify([replace(rollout, trajectory=trajectory)])


def test_an_aborted_rollout_with_samples_is_found():
    rollout = two_turns()
    with pytest.raises(Violation, match="aborted, but has samples"):
        verify([replace(rollout, reward=None)])


def test_a_rollout_counted_twice_is_found():
    with pytest.raises(Violation, match="recorded again"):
        verify([two_turns(), two_turns()])


def test_an_aborted_rollout_may_be_made_again_and_counts_once():
    lost = two_turns(reward=None, status=ExitStatus.ENGINE_FAILED)
    report = verify([lost, lost, two_turns()])
    assert (report.rollouts, report.aborted, report.samples) == (3, 2, 1)
    with pytest.raises(Violation, match="recorded again"):
        verify([two_turns(), lost])
