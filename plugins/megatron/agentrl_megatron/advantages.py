"""Group-relative advantages: how much better a rollout did than its siblings. Knows rewards, nothing of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

EPSILON = 1e-6


def group_advantages(rewards: Sequence[float], *, by_std: bool) -> list[float] | None:
    """``(r - mean) / (std + 1e-6)`` for each reward of one group, or ``r - mean`` without ``by_std``.

    The standard deviation is the sample's (n - 1). None for a uniform group (all rewards equal, or fewer than two):
    every advantage in it is zero, it has nothing to teach.
    """
    if len(rewards) < 2 or min(rewards) == max(rewards):
        return None
    mean = fmean(rewards)
    scale = stdev(rewards) + EPSILON if by_std else 1.0
    return [(reward - mean) / scale for reward in rewards]
