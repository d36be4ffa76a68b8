"""Canonical conversations in the shape that chat templates read (the dictionaries of Hugging Face and of OpenAI)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.tokens.plain import Plain
from agentrl.types import Block, Message, Text, Thinking, Tool, ToolCall, ToolResult

Chat = list[dict[str, Any]]
Schemas = list[dict[str, Any]]
_KEPT = 16


@dataclass(frozen=True, slots=True)
class Shelved:
    """A set of tools. ``schemas``: as functions (None for no tools, which templates tell from an empty list), not to be changed:
    they are shared. ``neutralised``: the control tokens in them. ``matter``: shape of a continuation → whether its
    rendering depends on the tools, where that is known."""

    tools: Sequence[Tool]
    schemas: Schemas | None
    neutralised: int = 0
    matter: dict[Hashable, bool] = field(default_factory=dict)


class ToolShelf:
    """What is worked out once for each set of tools and not in each turn."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._known = [Shelved((), None)]

    def find(self, tools: Sequence[Tool]) -> Shelved:
        """The entry of ``tools``, made if need be."""
        for known in self._known:
            if known.tools == tools:
                return known
        described = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in tools]
        plain, count = self._plain.value([{"type": "function", "function": d} for d in described])
        made = Shelved(tools, plain or None, count)
        self._known = [made, *self._known[: _KEPT - 1]]
        return made


class ChatWriter:
    """Writes one conversation, all content made plain; ``neutralised`` counts the control tokens found on the way."""

    def __init__(self, plain: Plain, shelf: ToolShelf, names: Mapping[str, str] | None = None) -> None:
        self.neutralised = 0
        self._plain, self._shelf = plain, shelf
        self._names = dict(names or {})

    def messages(self, messages: Iterable[Message]) -> Chat:
        """The messages, one dictionary for each tool result. Reasoning goes to ``reasoning_content``."""
        return [entry for m in messages for entry in self._entries(m)]

    def tools(self, tools: Sequence[Tool]) -> Schemas | None:
        """The tools as function schemas; None for no tools."""
        shelved = self._shelf.find(tools)
        self.neutralised += shelved.neutralised
        return shelved.schemas

    def _entries(self, message: Message) -> Iterator[dict[str, Any]]:
        if message.role == "tool":
            yield from (self._result(b) for b in message.blocks if isinstance(b, ToolResult))
        elif message.role == "assistant":
            yield self._said(message.blocks)
        else:
            yield {"role": message.role, "content": self._value(message.text)}

    def _result(self, result: ToolResult) -> dict[str, Any]:
        entry = {"role": "tool", "content": self._value(result.text), "tool_call_id": result.call_id}
        name = self._names.get(result.call_id)
        return entry if name is None else {**entry, "name": self._value(name)}

    def _said(self, blocks: Sequence[Block]) -> dict[str, Any]:
        texts = [b.text for b in blocks if isinstance(b, Text)]
        thoughts = [b.text for b in blocks if isinstance(b, Thinking)]
        calls = [b for b in blocks if isinstance(b, ToolCall)]
        self._names.update({c.id: c.name for c in calls})
        entry: dict[str, Any] = {"role": "assistant", "content": self._value("\n".join(texts))}
        if thoughts:
            entry["reasoning_content"] = self._value("\n".join(thoughts))
        if calls:
            entry["tool_calls"] = [self._call(c) for c in calls]
        return entry

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": self._value(call.name), "arguments": self._value(call.arguments)}
        return {"id": call.id, "type": "function", "function": function}

    def _value(self, value: Any) -> Any:
        plain, count = self._plain.value(value)
        self.neutralised += count
        return plain


def call_names(message: Message) -> dict[str, str]:
    """Call id → tool name of a reply: some formats write the name beside the result."""
    return {b.id: b.name for b in message.blocks if isinstance(b, ToolCall)}


def late_system_as_user(chat: Chat, *, first: int = 1) -> Chat:
    """For formats that know a system message only at the very beginning: from index ``first`` on the user says it."""
    return [{**m, "role": "user"} if m["role"] == "system" and i >= first else m for i, m in enumerate(chat)]


def users_joined(chat: Chat) -> Chat:
    """For formats where user and assistant must take turns: neighbouring user messages become one."""
    joined: Chat = []
    for message in chat:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n{message['content']}"}
        else:
            joined.append(message)
    return joined
