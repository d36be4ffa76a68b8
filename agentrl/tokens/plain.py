"""Text from outside stays text: spellings of control tokens in content are cut so that they cannot become control tokens.

The trick is one character: a noncharacter (the *seam*) is put behind the first letter of every such spelling before the
chat format sees the content; the rendered text is then cut at the seams and each piece encoded by itself. Content
without such spellings is encoded exactly as the chat template would have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

SEAM: Final = "\ufdd0"
"""Where rendered text is cut before encoding. U+FDD0 is no character: Unicode keeps it for use inside programs."""
MARK: Final = "\ufdd1"
"""Stands for a sampled reply in a rendered conversation."""

_SHORT = 8192


class Plain:
    """Makes content harmless, and counts. ``spellings``: the control tokens of a tokenizer, each of two letters or more."""

    def __init__(self, spellings: Iterable[str]) -> None:
        known = sorted(spellings)
        starts = {start: [s for s in known if s.startswith(start)] for start in {s[:2] for s in known}}
        self._by_start = {start: re.compile("|".join(map(re.escape, group))) for start, group in starts.items()}
        self._heads = frozenset(s[:n] for s in known for n in range(2, len(s)))
        self._tails = frozenset(s[-n:] for s in known for n in range(2, len(s)))
        self._longest = max(map(len, known), default=0)

    def text(self, text: str) -> tuple[str, int]:
        """``text`` with seams, and how many control tokens it spelled. Part of a spelling at an edge (two letters or
        more) is cut off from what the template puts there."""
        text = well_formed(text).replace(SEAM, "\ufffd").replace(MARK, "\ufffd")
        cuts = sorted(self._cuts(text))
        edges = range(2, min(self._longest, len(text) + 1))
        left = any(text[:n] in self._tails for n in edges)
        right = any(text[-n:] in self._heads for n in edges)
        bounds = [0, *cuts, len(text)]
        pieces = [text[a:b] for a, b in pairwise(bounds)]
        return SEAM.join([""] * left + pieces + [""] * right), len(cuts)

    def _cuts(self, text: str) -> Iterator[int]:
        """The positions behind the first letter of each spelling, overlapping ones too. Many short searches instead of one
        long one: other threads get their turn while a text of megabytes is looked through."""
        for start, spelling in self._by_start.items():
            at = text.find(start)
            while at >= 0:
                if spelling.match(text, at):
                    yield at + 1
                at = text.find(start, at + 1)

    def value(self, value: Any) -> tuple[Any, int]:
        """The same for all strings inside a JSON value, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            pairs = [(self.text(str(k)), self.value(v)) for k, v in value.items()]
            return {k[0]: v[0] for k, v in pairs}, sum(k[1] + v[1] for k, v in pairs)
        if isinstance(value, Sequence):
            items = [self.value(v) for v in value]
            return [v for v, _ in items], sum(n for _, n in items)
        return value, 0


def encoder_of(tokenizer: Any) -> Callable[[str], Sequence[int]]:
    """What turns rendered text into ids: the Rust tokenizer of a fast ``tokenizer`` without the layers above it, which cost a
    thread for each text. A short text is encoded here, a long one by the call that leaves other threads running."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda text: tokenizer.encode(text, add_special_tokens=False, verbose=False)
    backend.no_truncation()
    backend.no_padding()
    # One object for each id, made here and side by side: fresh ones are most of the memory of a thousand sessions, and those
    # that outlive a session keep the memory around them from being given back.
    numbers = list(range(max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1))

    def encode(text: str) -> Sequence[int]:
        if len(text) <= _SHORT:
            found = backend.encode(text, add_special_tokens=False)
        else:
            found = backend.encode_batch_fast([text], add_special_tokens=False)[0]
        return list(map(numbers.__getitem__, found.ids))

    return encode


def encode_pieces(text: str, encode: Callable[[str], Sequence[int]]) -> list[int]:
    """The ids of rendered text, piece by piece between its seams."""
    ids: list[int] = []
    for piece in text.split(SEAM):
        if piece:
            ids.extend(encode(piece))
    return ids


def control_tokens(added_tokens: Mapping[int, Any]) -> dict[str, int]:
    """Spelling → id of the control tokens among a tokenizer's added tokens (id → AddedToken).

    Added tokens that are mere vocabulary (runs of spaces in some tokenizers) do not count: they control nothing.
    """
    found = {str(token.content): int(i) for i, token in added_tokens.items() if _controls(token)}
    return {spelling: i for spelling, i in found.items() if len(spelling) > 1}


def well_formed(text: str) -> str:
    """``text`` without lone surrogates, which neither JSON nor a tokenizer can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _controls(token: Any) -> bool:
    return bool(token.special) or bool(set("<>[]|") & set(token.content))
