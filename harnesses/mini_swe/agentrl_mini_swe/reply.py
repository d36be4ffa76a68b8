"""What the model may answer: text with exactly one fenced bash block. Nothing here runs anything."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^```(?:bash|sh)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_OPENER = re.compile(r"^```(?:bash|sh)\b", re.MULTILINE)


class ReplyError(Exception):
    """The reply has no single command. The text is written for the model."""


def read_command(reply: str) -> str:
    """The command of the one bash block in ``reply``. Raises: ReplyError."""
    blocks: list[str] = [block.strip() for block in _BLOCK.findall(reply)]
    if len(blocks) > 1:
        raise ReplyError(f"{len(blocks)} bash blocks found, nothing was run.")
    if not blocks:
        raise ReplyError(_what_is_missing(reply))
    if not blocks[0]:
        raise ReplyError("The bash block is empty.")
    return blocks[0]


def _what_is_missing(reply: str) -> str:
    if _OPENER.search(reply):
        return "The bash block is not closed, nothing was run."
    return "No bash block found."
