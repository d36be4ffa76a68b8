"""Token ids as engines are sent them: JSON that is written once for each turn and then only copied.

A prompt repeats nearly all ids of the prompt before it. Turning 60,000 numbers into text again costs milliseconds a turn,
copying the text some microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import orjson


class TokenIds(Sequence[int]):
    """An immutable sequence of ids. ``json``: the ids in decimal with commas between them, without brackets; ``length``: how
    many there are. As a sequence it is read from ``json`` when first looked into."""

    __slots__ = ("_ids", "_length", "json")

    def __init__(self, json: bytes, length: int) -> None:
        self.json, self._length = json, length
        self._ids: list[int] | None = None

    @classmethod
    def of(cls, ids: Iterable[int]) -> TokenIds:
        """These ids."""
        listed = list(ids)
        return cls(orjson.dumps(listed)[1:-1], len(listed))

    def __add__(self, other: TokenIds) -> TokenIds:
        return joined([self, other])

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if self._ids is None:
            self._ids = orjson.loads(b"[%b]" % self.json)
        return self._ids[index]


def joined(parts: Iterable[TokenIds]) -> TokenIds:
    """All parts behind each other."""
    filled = [part for part in parts if len(part)]
    return TokenIds(b",".join([part.json for part in filled]), sum(map(len, filled)))
