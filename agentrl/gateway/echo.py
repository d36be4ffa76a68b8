"""What a model said, word for word, for servers that compare histories with what they have stored.

An agent gives a turn back in its own words: reasoning left out, arguments spelled anew, an empty text filled. A server that keeps
tokens takes such a turn for another one. Here each turn is found again and sent as it came. Not here: one conversation's
tokens (:mod:`agentrl.tokens.forest`); this is for servers that keep them themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.types import Message, Text, ToolCall

_KEPT = ("role", "content", "reasoning_content", "tool_calls")


@dataclass(slots=True)
class Echo:
    """The turns of one conversation."""

    _by_call: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _by_text: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def remember(self, message: Message, said: Mapping[str, Any]) -> None:
        """``said`` is how ``message`` came over the wire."""
        verbatim = {"role": "assistant"} | {name: said[name] for name in _KEPT if name in said}
        for call_id in _calls(message):
            self._by_call[call_id] = verbatim
        if not _calls(message):
            self._by_text.setdefault(_text(message), []).append(verbatim)

    def spelled(self, messages: Sequence[Message]) -> Iterator[tuple[Message, Mapping[str, Any] | None]]:
        """Each message with how it came over the wire, None for what the model never said. Of turns with one text, the first
        in ``messages`` is the one that was said first."""
        seen: Counter[str] = Counter()
        for message in messages:
            if message.role != "assistant":
                yield message, None
            elif calls := _calls(message):
                yield message, self._by_call.get(calls[0])
            else:
                same = self._by_text.get(_text(message), [])
                yield message, same[min(seen[_text(message)], len(same) - 1)] if same else None
                seen[_text(message)] += 1


def _calls(message: Message) -> list[str]:
    return [block.id for block in message.blocks if isinstance(block, ToolCall)]


def _text(message: Message) -> str:
    """Agents trim what they show; what is left tells turns apart all the same."""
    return "\n".join(block.text for block in message.blocks if isinstance(block, Text)).strip()
