"""Token ids as engines are sent them: JSON that is written once for each turn and then only copied.

A prompt repeats nearly all ids of the prompt before it. Turning 60,000 numbers into text again costs milliseconds a turn,
copying the text some microseconds. It also takes half the memory of a tuple, and the garbage collector does not look through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import orjson


class TokenIds(Sequence[int]):
    """An immutable sequence of ids. ``json``: the ids in decimal with commas between them, without brackets; ``length``: how
    many there are. It is read from ``json`` when it is looked into, and equals any sequence of the same ids."""

    __slots__ = ("_length", "json")

    def __init__(self, json: bytes, length: int) -> None:
        self.json, self._length = json, length

    @classmethod
    def of(cls, ids: Iterable[int]) -> TokenIds:
        """These ids."""
        if isinstance(ids, TokenIds):
            return ids
        listed = list(ids)
        return cls(orjson.dumps(listed)[1:-1], len(listed))

    def __add__(self, other: Iterable[int]) -> TokenIds:
        return joined([self, TokenIds.of(other)])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self._read())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TokenIds):
            return self.json == other.json
        return isinstance(other, Sequence) and self._read() == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TokenIds({self._read()})"

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._read()[index]

    def _read(self) -> list[int]:
        found: list[int] = orjson.loads(b"[%b]" % self.json)
        return found


def joined(parts: Iterable[TokenIds]) -> TokenIds:
    """All parts behind each other."""
    filled = [part for part in parts if len(part)]
    return TokenIds(b",".join([part.json for part in filled]), sum(map(len, filled)))
