"""Tokens are drawn from the distribution that their log-probabilities describe."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl_engine_local.sampling import Choice, choose

LOGITS = [2.0, 1.0, 0.0, -1.0, -torch.inf]
EVENLY = 1000


def shares(**how: object) -> list[float]:
    """How often each id is drawn when the draws are spread evenly over [0, 1)."""
    choices = [Choice(draw=(i + 0.5) / EVENLY, **how) for i in range(EVENLY)]
    ids, _ = choose(torch.tensor([LOGITS] * EVENLY), choices)
    return [ids.count(token) / EVENLY for token in range(len(LOGITS))]


def probabilities(temperature: float = 1.0) -> list[float]:
    weights = [math.exp(logit / temperature) for logit in LOGITS]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_ids_are_drawn_as_often_as_their_logprobs_say(temperature: float) -> None:
    assert shares(temperature=temperature) == pytest.approx(probabilities(temperature), abs=1.5 / EVENLY)
    _, logprobs = choose(torch.tensor([LOGITS]), [Choice(draw=0.0, temperature=temperature)])
    assert math.exp(logprobs[0]) == pytest.approx(probabilities(temperature)[0], rel=1e-6)


def test_top_k_keeps_the_likeliest() -> None:
    first, second = probabilities()[:2]
    assert shares(top_k=2) == pytest.approx([first / (first + second), second / (first + second), 0, 0, 0], abs=2e-3)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    kept = probabilities()[:2]
    assert sum(kept) > 0.8 > kept[0]
    assert shares(top_p=0.8) == pytest.approx([kept[0] / sum(kept), kept[1] / sum(kept), 0, 0, 0], abs=2e-3)


def test_cutting_does_not_change_the_logprob() -> None:
    _, plain = choose(torch.tensor([LOGITS]), [Choice(draw=0.1)])
    _, cut = choose(torch.tensor([LOGITS]), [Choice(draw=0.1, top_k=1, top_p=0.3)])
    assert cut == plain


def test_temperature_zero_takes_the_likeliest_and_reports_it_at_one() -> None:
    ids, logprobs = choose(torch.tensor([LOGITS]), [Choice(draw=0.999, temperature=0.0)])
    assert ids == [0]
    assert math.exp(logprobs[0]) == pytest.approx(probabilities()[0], rel=1e-6)


def test_banned_ids_are_never_drawn_and_the_rest_is_renormalised() -> None:
    first, second, third, fourth, _ = probabilities()
    rest = second + third + fourth
    assert shares(banned=frozenset({0})) == pytest.approx([0, second / rest, third / rest, fourth / rest, 0], abs=2e-3)
    assert first > 0


@given(st.floats(0, 1, exclude_max=True), st.lists(st.floats(-30, 30), min_size=2, max_size=8))
def test_what_is_drawn_was_possible(draw: float, logits: list[float]) -> None:
    ids, logprobs = choose(torch.tensor([[*logits, -torch.inf]]), [Choice(draw)])
    assert 0 <= ids[0] < len(logits)
    assert -math.inf < logprobs[0] <= 0


def test_rows_do_not_see_each_other() -> None:
    rows = [Choice(draw=0.3), Choice(draw=0.9, temperature=0.0), Choice(draw=0.7, top_k=2)]
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    together = choose(logits.clone(), rows)
    alone = [choose(logits[i : i + 1].clone(), [row]) for i, row in enumerate(rows)]
    assert together == ([ids[0] for ids, _ in alone], [logprobs[0] for _, logprobs in alone])
