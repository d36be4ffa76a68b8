"""The raw engine exchanges of a session, kept at the cost of their new ids only.

A prompt repeats nearly everything of an earlier exchange. Each entry stores the exchange that it shares the longest
prefix with among the recent ones and the rest, found by comparing what was really sent: the log is evidence about the
recorded turns, so it never reads them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.types import EngineCall, Generation

_LOOK_BACK = 8


@dataclass(frozen=True, slots=True)
class _Entry:
    base: int
    shared: int
    rest: array[int]
    generation: Generation


class CallLog:
    """Append-only; :meth:`materialise` gives the exchanges in order, with their whole prompts."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._recent: list[tuple[int, array[int]]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, prompt: Sequence[int], generation: Generation) -> None:
        """Record that ``prompt`` was sent and ``generation`` came back."""
        sent = array("q", prompt)
        base, shared = max(
            ((number, _common(whole, sent)) for number, whole in self._recent),
            key=lambda found: found[1],
            default=(-1, 0),
        )
        self._recent.append((len(self._entries), sent + array("q", generation.ids)))
        del self._recent[:-_LOOK_BACK]
        self._entries.append(_Entry(base, shared, sent[shared:], generation))

    def materialise(self) -> tuple[EngineCall, ...]:
        """All exchanges, oldest first."""
        whole: list[array[int]] = []
        calls = []
        for entry in self._entries:
            prompt = (whole[entry.base][: entry.shared] if entry.shared else array("q")) + entry.rest
            g = entry.generation
            whole.append(prompt + array("q", g.ids))
            calls.append(EngineCall(g.request_id, tuple(prompt), g.ids, g.logprobs, g.finish, g.weight_version))
        return tuple(calls)


def _common(a: array[int], b: array[int]) -> int:
    """Length of the common prefix, by bisection over comparisons that run in C."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
