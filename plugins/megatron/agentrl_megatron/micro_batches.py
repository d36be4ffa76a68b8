"""Lines to micro-batches: padded arrays under a token budget, the same number for every data-parallel rank.

Padding stands behind the tokens of a line: under causal attention it changes nothing before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentrl_megatron.batch import Row
from agentrl_megatron.lines import Line, make_lines


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """``tokens``, ``positions`` and ``branches`` int64 [height, width], padded with 0; branch 0 is the trunk of a line.

    All others have one entry for each trained token, or a single one of weight 0 where nothing is trained: ``rows`` and
    ``columns`` int64 say where it is predicted, ``labels`` int64 what it is; ``logprobs``, ``weights`` and ``advantages``
    float32 are its own.
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    branches: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    labels: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    weights: NDArray[np.float32]
    advantages: NDArray[np.float32]


def plan(rows: Sequence[Row], *, budget: int, dp: int, uniform: bool, share: bool = True) -> list[list[MicroBatch]]:
    """The micro-batches of each data-parallel rank, equally many; empty ones fill up.

    ``budget``: tokens of a micro-batch with padding. ``uniform``: all have one shape, which pipeline stages need.
    ``share``: rows may share a line.
    """
    lines = list(make_lines(rows, budget=budget, share=share))
    longest = max(line.width for line in lines)
    packs = list(_packs(lines, budget, longest if uniform else 0))
    packs += [[] for _ in range(-len(packs) % dp)]
    height = max(map(len, packs)) if uniform else 1
    batches = [_pad(pack, max(height, len(pack)), longest if uniform else _longest(pack)) for pack in packs]
    return [batches[rank::dp] for rank in range(dp)]


def _longest(lines: Sequence[Line]) -> int:
    return max((line.width for line in lines), default=1)


def _packs(lines: Sequence[Line], budget: int, width: int) -> Iterator[list[Line]]:
    """Lines of similar width together, longest first; ``width`` > 0 is what every line will be padded to."""
    pack: list[Line] = []
    for line in sorted(lines, key=lambda line: line.width, reverse=True):
        padded = width or _longest(pack or [line])
        if pack and (len(pack) + 1) * padded > budget:
            yield pack
            pack = []
        pack.append(line)
    yield pack


def _pad(pack: Sequence[Line], height: int, width: int) -> MicroBatch:
    tokens, positions, branches = (np.zeros((height, width), np.int64) for _ in range(3))
    places: list[tuple[int, int, Row, int]] = []
    for i, line in enumerate(pack):
        _write(line, tokens[i], positions[i], branches[i])
        places += [(i, column, row, t) for row, t, column in _trained(line)]
    return MicroBatch(
        tokens,
        positions,
        branches,
        rows=np.array([i for i, _, _, _ in places] or [0], np.int64),
        columns=np.array([column for _, column, _, _ in places] or [0], np.int64),
        labels=np.array([row.sample.tokens[t] for _, _, row, t in places] or [0], np.int64),
        logprobs=np.array([row.sample.logprobs[t] for _, _, row, t in places] or [0], np.float32),
        weights=np.array([row.token_weight for _, _, row, _ in places] or [0], np.float32),
        advantages=np.array([row.advantage for _, _, row, _ in places] or [0], np.float32),
    )


def _write(line: Line, tokens: NDArray[np.int64], positions: NDArray[np.int64], branches: NDArray[np.int64]) -> None:
    tokens[: line.trunk] = line.rows[0].sample.tokens[: line.trunk]
    positions[: line.trunk] = np.arange(line.trunk)
    for branch, (row, start) in enumerate(zip(line.rows, line.starts(), strict=True), start=1):
        rest = row.sample.tokens[line.trunk : -1]
        end = start + len(rest)
        tokens[start:end], branches[start:end] = rest, branch
        positions[start:end] = np.arange(line.trunk, line.trunk + len(rest))


def _trained(line: Line) -> Iterator[tuple[Row, int, int]]:
    """(row, place in it, column that predicts it) of every trained token: the place before it, in trunk or branch."""
    for row, start in zip(line.rows, line.starts(), strict=True):
        for t, trained in enumerate(row.sample.loss_mask):
            if trained:
                yield row, t, t - 1 if t <= line.trunk else start + t - 1 - line.trunk
