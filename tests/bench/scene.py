"""What is said in a benchmark: a coding session with a realistic tokenizer, made ahead of time so that nobody pays for it later.

Not here: who says it (:mod:`engine_side`, :mod:`client_side`) and who listens (:mod:`gateway_side`).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

RESULT_TOKENS = 400
SAMPLED_TOKENS = 64
OPENING_TOKENS = 10_000
_BOOKS = (
    "argparse",
    "tarfile",
    "zipfile",
    "typing",
    "pathlib",
    "subprocess",
    "threading",
    "datetime",
    "doctest",
    "pdb",
)
_VARIANTS = 100


@dataclass(frozen=True, slots=True)
class Scene:
    """``opening``: the system prompt. ``results``: tool outputs. ``replies``: sampled ids, each a readable tool call of
    ``SAMPLED_TOKENS`` ids with the end token, one word of it in a spelling that encoding never gives."""

    opening: str
    results: Sequence[str]
    replies: Sequence[Sequence[int]]


def make_scene(model_dir: Path) -> Scene:
    """The scene in the tokens of the model in ``model_dir`` (a ChatML one)."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    pieces = _pieces(tokenizer)
    opening = "".join(next(pieces) for _ in range(OPENING_TOKENS // RESULT_TOKENS))
    results = [next(pieces) for _ in range(_VARIANTS)]
    return Scene(opening, results, [_reply(tokenizer, result) for result in results])


def _pieces(tokenizer: Tokenizer) -> Iterator[str]:
    """Source text in pieces of ``RESULT_TOKENS``, endless."""
    while True:
        for name in _BOOKS:
            text = inspect.getsource(__import__(name))
            offsets = tokenizer.encode(text, add_special_tokens=False).offsets
            for at in range(0, len(offsets) - RESULT_TOKENS, RESULT_TOKENS):
                yield text[offsets[at][0] : offsets[at + RESULT_TOKENS - 1][1]]


def _reply(tokenizer: Tokenizer, source: str) -> list[int]:
    """A call whose command is filled up with words of ``source`` until it has the right length."""
    words = "".join(c for c in source if c.isalnum() or c == " ").split()
    end = tokenizer.token_to_id("<|im_end|>")
    for length in range(len(words), 0, -1):
        command = "grep -rn " + " ".join(words[:length])
        call = json.dumps({"name": "Bash", "arguments": {"command": command}})
        ids = _misspelled(tokenizer, f"I look.\n<tool_call>\n{call}\n</tool_call>")
        if len(ids) < SAMPLED_TOKENS:
            return [*ids, *[tokenizer.token_to_id("Ċ")] * (SAMPLED_TOKENS - 1 - len(ids)), end]
    raise AssertionError("the shortest call is too long")


def _misspelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of ``text`` with " look" as two tokens instead of one."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    at = ids.index(tokenizer.token_to_id("Ġlook"))
    two = [tokenizer.token_to_id("Ġ"), *tokenizer.encode("look", add_special_tokens=False).ids]
    spelled = [*ids[:at], *two, *ids[at + 1 :]]
    assert tokenizer.decode(spelled) == text
    return spelled
