"""Which slot of memory holds which tokens: the prefix cache.

A slot keeps its tokens when its sequence ends. A new prompt continues in place where it extends them, and copies
where it shares only a beginning: the rollouts of a group, a fork of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Slot:
    """``ids``: the tokens whose keys and values it holds. ``stale``: computed under weights that are gone, not to be reused."""

    index: int
    ids: list[int] = field(default_factory=list)
    busy: bool = False
    stale: bool = False
    used_at: int = 0


class Slots:
    """``copy_prefix(source, target, length)`` moves memory between slots."""

    def __init__(self, count: int, copy_prefix: Callable[[int, int, int], None]) -> None:
        self._slots = [Slot(index) for index in range(count)]
        self._copy_prefix = copy_prefix
        self._clock = 0

    def take(self, prompt: Sequence[int]) -> Slot | None:
        """A free slot that holds as much of ``prompt`` as is known, but never its last token; None when all are busy."""
        free = [slot for slot in self._slots if not slot.busy]
        if not free:
            return None
        known, source = max(
            ((_common(slot.ids, prompt), slot) for slot in self._slots if not slot.stale),
            key=lambda found: (found[0], not found[1].busy, -len(found[1].ids)),
        )
        if source.busy or known < len(source.ids):
            target = min(free, key=lambda slot: (slot is source and known > 0, bool(slot.ids), slot.used_at))
            if target is not source:
                self._copy_prefix(source.index, target.index, known)
            target.ids = list(prompt[:known])
            source = target
        source.busy, source.stale = True, False
        return source

    def give_back(self, slot: Slot) -> None:
        """Free it; what it holds stays known, unless it is stale."""
        self._clock += 1
        slot.busy, slot.used_at = False, self._clock
        if slot.stale:
            slot.ids, slot.stale = [], False

    def flush(self) -> None:
        """Nothing computed so far is given to new prompts; busy slots go on."""
        for slot in self._slots:
            if slot.busy:
                slot.stale = True
            else:
                slot.ids = []


def _common(known: Sequence[int], prompt: Sequence[int]) -> int:
    """Length of the common beginning, at most ``len(prompt) - 1``."""
    limit = min(len(known), len(prompt) - 1)
    return next((i for i in range(limit) if known[i] != prompt[i]), limit)
