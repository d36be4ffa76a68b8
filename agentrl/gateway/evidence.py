"""The raw engine exchanges of a session, kept at the cost of their new ids only.

A prompt repeats nearly everything of an earlier exchange. Each entry stores the exchange that it shares the longest
prefix with among the recent ones and the rest, found by comparing what was really sent: the log is evidence about the
recorded turns, so it never reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.tokens.ids import TokenIds
from agentrl.types import EngineCall, Generation

_LOOK_BACK = 8


@dataclass(frozen=True, slots=True)
class _Entry:
    """``shared``: how many ids of the exchange ``base`` the prompt begins with; ``rest``: what follows them."""

    base: int
    shared: int
    rest: TokenIds
    generation: Generation


@dataclass(frozen=True, slots=True)
class _Recent:
    """An exchange as a whole, prompt and sampled ids, and its place in the log."""

    number: int
    ids: TokenIds


class CallLog:
    """Append-only; :meth:`materialise` gives the exchanges in order, with their whole prompts."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._recent: list[_Recent] = []

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, prompt: TokenIds, generation: Generation) -> None:
        """Record that ``prompt`` was sent and ``generation`` came back."""
        base, shared, size = self._nearest(prompt)
        rest = TokenIds(prompt.json[size:].lstrip(b","), len(prompt) - shared)
        if base is not None and shared == len(base.ids):
            self._recent.remove(base)  # The new exchange begins with all of it.
        self._recent.append(_Recent(len(self._entries), prompt + TokenIds.of(generation.ids)))
        del self._recent[:-_LOOK_BACK]
        self._entries.append(_Entry(base.number if base else -1, shared, rest, generation))

    def materialise(self) -> tuple[EngineCall, ...]:
        """All exchanges, oldest first."""
        whole: list[tuple[int, ...]] = []
        calls = []
        for entry in self._entries:
            prompt = (*(whole[entry.base][: entry.shared] if entry.shared else ()), *entry.rest)
            g = entry.generation
            whole.append((*prompt, *g.ids))
            calls.append(EngineCall(g.request_id, prompt, g.ids, g.logprobs, g.finish, g.weight_version))
        return tuple(calls)

    def _nearest(self, prompt: TokenIds) -> tuple[_Recent | None, int, int]:
        """The recent exchange that shares most with ``prompt``: it, the number of shared ids, and the size of their JSON."""
        found = max(
            ((r, _common(r.ids.json, prompt.json)) for r in self._recent), key=lambda f: f[1], default=(None, 0)
        )
        base, size = found
        if base is None or not size:
            return None, 0, 0
        whole = size == len(base.ids.json)
        return base, len(base.ids) if whole else base.ids.json.count(b",", 0, size) + 1, size


def _common(a: bytes, b: bytes) -> int:
    """Length of the common prefix in whole numbers, by bisection over comparisons that run in C."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    ends = a[low : low + 1] in (b"", b",") and b[low : low + 1] in (b"", b",")
    return low if ends else max(0, a.rfind(b",", 0, low))
