"""What is said: messages, tools, requests and replies in canonical form. Every dialect reads into it, every codec renders from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of the model. ``signature`` is whatever a client echoed; it carries no meaning here."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. ``id`` is minted by the gateway and finds the turn again when echoed."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered; several blocks of a result are joined into one text."""

    call_id: str
    text: str
    is_error: bool = False


Block = Text | Thinking | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One message in canonical form: every dialect reads into this, every codec renders from it.

    ``ToolCall`` appears in assistant messages only, ``ToolResult`` in ``tool`` messages only (dialects that carry
    results inside user messages are split into ``tool`` and ``user`` messages, in order).
    """

    role: Role
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """All visible text (of tool results too), joined by newlines."""
        return "\n".join(b.text for b in self.blocks if isinstance(b, Text | ToolResult))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool offered to the model; ``parameters`` is a JSON schema.

    ``freeform``: the client's tool takes bare text. The model sees a function with the one string ``input``; the dialect
    translates its calls back.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    freeform: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request in canonical form. Sampling parameters of the client are not part of it: they belong to the run.

    ``max_tokens`` is the client's cap for this turn (``None``: no wish). ``stop`` are strings that end the reply. ``client``:
    the program that sent it and its run, as it says of itself; dialects leave it empty.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    stop: tuple[str, ...] = ()
    client: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn: ``prompt`` as sent to the engine, ``completion`` as sampled."""

    prompt: int
    completion: int


Finish = Literal["stop", "tool_calls", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What one turn answers. ``message`` has at least one block; ``turn_id`` names the recorded turn, ``tools`` are those that
    the request offered."""

    message: Message
    finish: Finish
    usage: Usage
    turn_id: str
    model: str = ""
    tools: tuple[Tool, ...] = ()
