import math

import pytest
import torch

from agentrl_megatron.loss import LossLimits, policy_loss

LIMITS = LossLimits(clip_low=0.2, clip_high=0.28, tis_cap=2.0)


def loss_of_one_token(*, ratio=1.0, importance=1.0, advantage=1.0, weight=1.0):
    """The loss and its gradient by the logprob, for one token with the given policy ratio and importance weight."""
    old = torch.tensor([-1.5])
    logprob = (old + math.log(ratio)).requires_grad_()
    result = policy_loss(
        logprob, old, old - math.log(importance), torch.tensor([advantage]), torch.tensor([weight]), LIMITS
    )
    result.loss.backward()
    return result, logprob.grad.item()


@pytest.mark.parametrize("advantage", [2.0, -3.0])
def test_on_policy_the_gradient_is_that_of_the_plain_policy_gradient(advantage):
    result, gradient = loss_of_one_token(advantage=advantage, weight=0.25)
    assert math.isclose(gradient, -0.25 * advantage, rel_tol=1e-6)
    assert (result.clipped, result.capped) == (0, 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "clipped"),
    [
        (1.1, 1.0, 1.1, 0),
        (1.5, 1.0, 1.28, 1),  # gone far enough up
        (0.5, 1.0, 0.5, 0),  # wrong direction: never clipped
        (0.5, -1.0, -0.8, 1),  # gone far enough down
        (1.5, -1.0, -1.5, 0),  # wrong direction: never clipped
    ],
)
def test_a_ratio_is_clipped_only_where_it_went_too_far_in_the_wanted_direction(ratio, advantage, expected, clipped):
    result, gradient = loss_of_one_token(ratio=ratio, advantage=advantage)
    assert math.isclose(result.loss.item(), -expected, rel_tol=1e-5)
    assert result.clipped == clipped
    assert (gradient == 0) == bool(clipped)


@pytest.mark.parametrize(("importance", "expected", "capped"), [(0.5, 0.5, 0), (1.9, 1.9, 0), (5.0, 2.0, 1)])
def test_the_mismatch_with_the_engine_is_corrected_up_to_the_cap(importance, expected, capped):
    result, gradient = loss_of_one_token(importance=importance, advantage=3.0)
    assert math.isclose(gradient, -3.0 * expected, rel_tol=1e-5)
    assert result.capped == capped


def test_tokens_without_weight_have_no_part_in_anything():
    logprobs = torch.tensor([-1.0, -9.0, -2.0], requires_grad=True)
    old = torch.tensor([-1.0, -19.0, -2.0])
    behaviour = torch.tensor([-1.0, -99.0, -2.0])
    advantages, weights = torch.tensor([1.0, 1.0, -2.0]), torch.tensor([0.5, 0.0, 0.5])
    result = policy_loss(logprobs, old, behaviour, advantages, weights, LIMITS)
    result.loss.backward()
    assert math.isclose(result.loss.item(), -(0.5 * 1.0 + 0.5 * -2.0), rel_tol=1e-6)
    assert (result.clipped, result.capped) == (0, 0)
    assert logprobs.grad.tolist() == [-0.5, 0.0, 1.0]
