"""Rows to micro-batches: padded arrays under a token budget, the same number for every data-parallel rank.

Padding stands behind the tokens of a row: under causal attention it changes nothing before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentrl_megatron.batch import Row


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """``tokens`` int64 [height, length], padded with 0. All others have one entry for each trained token, or a single
    one of weight 0 where nothing is trained: ``rows`` and ``columns`` int64 say where it is predicted (it stands one
    column further), ``logprobs``, ``weights`` and ``advantages`` float32 are its own."""

    tokens: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    weights: NDArray[np.float32]
    advantages: NDArray[np.float32]


def plan(rows: Sequence[Row], *, budget: int, dp: int, uniform: bool) -> list[list[MicroBatch]]:
    """The micro-batches of each data-parallel rank, equally many; empty ones fill up.

    ``budget``: tokens of a micro-batch with padding. ``uniform``: all have one shape, which pipeline stages need.
    """
    longest = max(len(row.sample.tokens) for row in rows)
    packs = list(_packs(rows, budget, longest if uniform else 0))
    packs += [[] for _ in range(-len(packs) % dp)]
    height = max(map(len, packs)) if uniform else 1
    batches = [_pad(pack, max(height, len(pack)), longest if uniform else _longest(pack)) for pack in packs]
    return [batches[rank::dp] for rank in range(dp)]


def _longest(rows: Sequence[Row]) -> int:
    return max((len(row.sample.tokens) for row in rows), default=2)


def _packs(rows: Sequence[Row], budget: int, length: int) -> Iterator[list[Row]]:
    """Rows of similar length together, longest first; ``length`` > 0 is what every row will be padded to."""
    pack: list[Row] = []
    for row in sorted(rows, key=lambda r: len(r.sample.tokens), reverse=True):
        width = length or _longest(pack or [row])
        if pack and (len(pack) + 1) * width > budget:
            yield pack
            pack = []
        pack.append(row)
    yield pack


def _pad(pack: Sequence[Row], height: int, length: int) -> MicroBatch:
    tokens = np.zeros((height, length), np.int64)
    for i, row in enumerate(pack):
        tokens[i, : len(row.sample.tokens)] = row.sample.tokens
    places = [(i, t) for i, row in enumerate(pack) for t, trained in enumerate(row.sample.loss_mask) if trained]
    return MicroBatch(
        tokens,
        rows=np.array([i for i, _ in places] or [0], np.int64),
        columns=np.array([t - 1 for _, t in places] or [0], np.int64),
        logprobs=np.array([pack[i].sample.logprobs[t] for i, t in places] or [0], np.float32),
        weights=np.array([pack[i].token_weight for i, _ in places] or [0], np.float32),
        advantages=np.array([pack[i].advantage for i, _ in places] or [0], np.float32),
    )
