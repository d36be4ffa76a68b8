"""Rows that begin alike, laid out in one line with their common beginning once.

The rollouts of a group share their whole prompt, which is most of a short sample: computed once instead of once for
each rollout, an update costs a fraction, and the numbers are the same. A line is a trunk and, behind it, the rest of
each row as a branch; a branch sees the trunk and itself (:func:`agentrl_megatron.attention.line_mask`), at the positions that its
row has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrl_megatron.batch import Row


@dataclass(frozen=True, slots=True)
class Line:
    """``trunk``: how many tokens its ``rows`` have in common. The last token of a row predicts nothing, so it is left out."""

    rows: tuple[Row, ...]
    trunk: int

    @property
    def width(self) -> int:
        """Tokens of the line."""
        return self.trunk + sum(_size(row) - self.trunk for row in self.rows)

    def starts(self) -> list[int]:
        """The column at which each row's branch begins."""
        starts, column = [], self.trunk
        for row in self.rows:
            starts.append(column)
            column += _size(row) - self.trunk
        return starts

    def joined(self, row: Row) -> Line:
        """The line with one more row."""
        return Line((*self.rows, row), _common(self.rows[0], row, self.trunk))


def make_lines(rows: Sequence[Row], *, budget: int, share: bool) -> Iterator[Line]:
    """Rows into lines of at most ``budget`` tokens (a longer row has its own); a row joins a line when that saves tokens."""
    line: Line | None = None
    for row in sorted(rows, key=lambda r: r.sample.tokens):  # what begins alike stands together
        if line is None:
            line = _alone(row)
            continue
        joined = line.joined(row)
        if share and joined.width < line.width + _size(row) and joined.width <= budget:
            line = joined
        else:
            yield line
            line = _alone(row)
    if line is not None:
        yield line


def _alone(row: Row) -> Line:
    return Line((row,), _size(row))


def _size(row: Row) -> int:
    return len(row.sample.tokens) - 1


def _common(a: Row, b: Row, limit: int) -> int:
    """Length of the common beginning, at most ``limit`` and what both rows keep."""
    limit = min(limit, _size(b))
    x, y = a.sample.tokens[:limit], b.sample.tokens[:limit]
    return limit if x == y else next(i for i in range(limit) if x[i] != y[i])
