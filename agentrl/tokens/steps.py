"""A conversation as a flat list of comparable steps: what counts as the same, and what a client may alter.

Clients regroup blocks, drop blank ones, reorder the keys of arguments and move text around in our replies. So history is compared
block by block for what others said, and as one whole for what the model said.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from agentrl.types import Block, Message, Text, Tool, ToolCall, ToolResult

_TEXTUAL: Final = (Text, ToolResult)
_BILLING = "x-anthropic-billing-header:"


class Step(NamedTuple):
    """One comparable unit. ``keys``: the identities it may have, most trusted first. ``end``: the number of messages up
    to and including the one it ends in. ``said``: the blocks when the model (or somebody in its name) said it."""

    keys: tuple[Hashable, ...]
    end: int
    said: tuple[Block, ...] = ()


def without_noise(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without lines that change from request to request and mean nothing (billing and attribution)."""
    quiet = (_quiet(m) if m.role == "system" else m for m in messages)
    return tuple(m for m in quiet if m.blocks or m.role != "system")


def tools_key(tools: Sequence[Tool]) -> str:
    """The identity of a set of tools, in their order; the order of keys in a schema does not matter."""
    return canonical_json([[t.name, t.description, t.parameters] for t in tools])


def steps(messages: Sequence[Message], turn_of_call: Mapping[str, str], lane: str) -> Iterator[Step]:
    """The steps of a conversation. ``turn_of_call``: tool-call id → the turn that minted it."""
    index = 0
    while index < len(messages):
        start, role = index, messages[index].role
        index += 1
        if role != "assistant":
            blocks = messages[start].blocks
            yield from (Step((_heard(role, b),), index) for b in blocks if _matters(b))
            continue
        while index < len(messages) and messages[index].role == "assistant":
            index += 1
        said = tuple(b for m in messages[start:index] for b in m.blocks)
        yield Step(_said_keys(said, turn_of_call, lane), index, said)


def reply_keys(turn_id: str, lane: str, reply: Message) -> tuple[Hashable, ...]:
    """The keys under which an echo of ``reply`` is looked up."""
    signature = _signature(reply.blocks)
    return ("turn", turn_id), ("said", lane, *signature), ("said", *signature)


def renamed(messages: Sequence[Message], echo: Sequence[Block], reply: Message) -> tuple[Message, ...]:
    """``messages`` with the call ids of ``echo`` turned back into those of ``reply``, for clients that rename ids."""
    theirs = [b.id for b in echo if isinstance(b, ToolCall)]
    ours = [b.id for b in reply.blocks if isinstance(b, ToolCall)]
    ids = {a: b for a, b in zip(theirs, ours, strict=False) if a != b and a not in ours}
    return tuple(_with_ids(m, ids) for m in messages) if ids else tuple(messages)


def canonical_json(value: Any) -> str:
    """One spelling for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict)


def _quiet(message: Message) -> Message:
    if not any(isinstance(b, Text) and b.text.startswith(_BILLING) for b in message.blocks):
        return message
    blocks = (
        Text(b.text.partition("\n")[2]) if isinstance(b, Text) and b.text.startswith(_BILLING) else b
        for b in message.blocks
    )
    return replace(message, blocks=tuple(b for b in blocks if _matters(b)))


def _with_ids(message: Message, ids: Mapping[str, str]) -> Message:
    blocks = tuple(
        replace(b, call_id=ids.get(b.call_id, b.call_id)) if isinstance(b, ToolResult) else b for b in message.blocks
    )
    return replace(message, blocks=blocks)


def _matters(block: Block) -> bool:
    """Blank text says nothing, and clients drop it; a blank tool result is a result."""
    return not isinstance(block, Text) or bool(block.text and not block.text.isspace())


def _heard(role: str, block: Block) -> Hashable:
    """What others said. The call id of a result is left out: its place says it, and clients rename ids."""
    return role, type(block).__name__, block.text if isinstance(block, _TEXTUAL) else repr(block)


def _said_keys(said: Sequence[Block], turn_of_call: Mapping[str, str], lane: str) -> tuple[Hashable, ...]:
    turn = next((turn_of_call[b.id] for b in said if isinstance(b, ToolCall) and b.id in turn_of_call), None)
    if turn is not None:
        return (("turn", turn),)
    signature = _signature(said)
    return ("said", lane, *signature), ("said", *signature)


def _signature(said: Sequence[Block]) -> tuple[Hashable, ...]:
    """Words without white space, and calls without ids: what survives an echo. Reasoning is left out, clients drop it."""
    words = "".join("".join(b.text.split()) for b in said if isinstance(b, Text))
    calls = tuple((b.name, canonical_json(b.arguments)) for b in said if isinstance(b, ToolCall))
    return words, calls
