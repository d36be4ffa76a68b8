"""Choosing the next tokens from logits, with the log-probabilities that a trainer needs.

A log-probability is that of the distribution after temperature and before ``top_p`` and ``top_k``, as SGLang returns it; with those off
it is exactly the distribution sampled from. Temperature 0 takes the likeliest token and reports it at temperature 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Choice:
    """How one row is sampled. ``draw``: a uniform number in [0, 1). ``top_k`` 0: off. ``banned``: ids not to choose now."""

    draw: float
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    banned: frozenset[int] = frozenset()


@torch.inference_mode()
def choose(logits: Tensor, choices: Sequence[Choice]) -> tuple[list[int], list[float]]:
    """[rows, vocab] float32 logits, one choice a row → ids and their log-probabilities (NaN where a row has none)."""
    for row, choice in zip(logits, choices, strict=True):
        if choice.banned:
            row[list(choice.banned)] = -torch.inf
    temperatures = torch.tensor([choice.temperature or 1.0 for choice in choices])
    logprobs = torch.log_softmax(logits / temperatures[:, None], -1)
    weights = logprobs.exp()
    for row, choice in zip(weights, choices, strict=True):
        if choice.top_p < 1.0 or choice.top_k:
            _cut(row, choice)
    # Inverting the distribution costs a twentieth of torch.multinomial on a large vocabulary, and takes one number.
    steps = weights.cumsum(-1, dtype=torch.float64)
    draws = torch.tensor([choice.draw for choice in choices], dtype=torch.float64)
    sampled = torch.searchsorted(steps, (draws * steps[:, -1])[:, None], right=True)[:, 0]
    greedy = torch.tensor([choice.temperature == 0 for choice in choices])
    ids = torch.where(greedy, logprobs.argmax(-1), sampled.clamp(max=logits.shape[-1] - 1))
    return ids.tolist(), logprobs.gather(1, ids[:, None])[:, 0].tolist()


def _cut(weights: Tensor, choice: Choice) -> None:
    """Zero what is outside the ``top_k`` likeliest, or beyond the ``top_p`` of the mass."""
    ordered, order = weights.sort(descending=True)
    outside = ordered.cumsum(-1) - ordered > choice.top_p
    if choice.top_k:
        outside[choice.top_k :] = True
    weights[order[outside]] = 0.0
