"""Anthropic Messages (``/v1/messages`` and ``/v1/messages/count_tokens``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentrl.dialect import Route
from agentrl.errors import BadRequest
from agentrl.gateway.dialects.content import arguments_of, limit_at, list_at, object_at, parts_of, stops_at, string_at
from agentrl.gateway.dialects.errors import judge
from agentrl.gateway.wire import dumps
from agentrl.types import Block, ChatRequest, Message, Reply, Text, Thinking, Tool, ToolCall, ToolResult

_ERRORS: Mapping[str, tuple[int, str]] = {
    "bad_request": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "closed": (410, "session_closed"),
    "context": (400, "invalid_request_error"),
    "budget": (429, "budget_exhausted"),
    "overloaded": (529, "overloaded_error"),
    "internal": (500, "api_error"),
}
# A client's attribution line: it changes from request to request and says nothing to the model.
_ATTRIBUTION = "x-anthropic-billing-header:"


class AnthropicMessages:
    """Messages, streamed and not."""

    name = "anthropic"
    routes: Sequence[Route] = (Route("/v1/messages", "chat"), Route("/v1/messages/count_tokens", "count_tokens"))

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """The request in canonical form. Raises: BadRequest."""
        entries = list_at(body.get("messages"), "messages")
        if not entries:
            raise BadRequest("messages: at least one message is required")
        messages = [*_system(body.get("system"))]
        for i, entry in enumerate(entries):
            messages += _messages(object_at(entry, f"messages.{i}"), f"messages.{i}")
        return ChatRequest(
            model=string_at(body.get("model", ""), "model"),
            messages=tuple(messages),
            tools=tuple(_tool(t, f"tools.{i}") for i, t in enumerate(list_at(body.get("tools"), "tools"))),
            max_tokens=limit_at(body.get("max_tokens"), "max_tokens"),
            stream=body.get("stream") is True,
            stop=stops_at(body.get("stop_sequences"), "stop_sequences"),
        )

    def reply(self, reply: Reply) -> Mapping[str, Any]:
        """The JSON of a non-streamed reply."""
        return {
            "id": f"msg_{reply.turn_id}",
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": [_written(block) for block in reply.message.blocks],
            "stop_reason": _stop_reason(reply),
            "stop_sequence": None,
            "usage": _usage(reply, reply.usage.completion),
        }

    def events(self, reply: Reply) -> Iterable[bytes]:
        """The reply as events: each block with its own index, start and stop."""
        opening = {**self.reply(reply), "content": [], "stop_reason": None, "usage": _usage(reply, 0)}
        yield _event("message_start", {"message": opening})
        for index, block in enumerate(reply.message.blocks):
            yield from _block_events(index, block)
        end = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        yield _event("message_delta", {"delta": end, "usage": _usage(reply, reply.usage.completion)})
        yield _event("message_stop", {})

    def ping(self) -> bytes:
        """A ``ping`` event."""
        return _event("ping", {})

    def count(self, tokens: int) -> Mapping[str, Any]:
        """The JSON that answers ``count_tokens``."""
        return {"input_tokens": tokens}

    def error_event(self, error: Exception) -> bytes:
        """An error inside a stream that has already begun."""
        return _event("error", self.error(error)[1])

    def error(self, error: Exception) -> tuple[int, Mapping[str, Any], Mapping[str, str]]:
        """(HTTP status, JSON body, extra headers)."""
        verdict = judge(error)
        status, kind = _ERRORS[verdict.kind]
        return status, {"type": "error", "error": {"type": kind, "message": verdict.message}}, verdict.headers


# ---------------------------------------------------------------------------------------------------- reading


def _text(part: Any, where: str) -> str:
    part = object_at(part, where)
    if part.get("type") != "text":
        raise BadRequest(f"{where}: content of type {part.get('type')!r} is not supported, this model reads text only")
    return string_at(part.get("text"), f"{where}.text")


def _system(content: Any) -> Iterator[Message]:
    said = [_text(p, "system") for p in parts_of(content, "system")]
    blocks = tuple(Text(text) for text in said if not text.startswith(_ATTRIBUTION))
    if blocks:
        yield Message("system", blocks)


def _messages(entry: Mapping[str, Any], where: str) -> Iterator[Message]:
    """One wire message; results of tools become messages of their own, what the user says between them stays in order."""
    role, parts = entry.get("role"), parts_of(entry.get("content"), f"{where}.content")
    match role:
        case "system":
            yield Message("system", tuple(Text(_text(p, f"{where}.content")) for p in parts) or (Text(""),))
        case "assistant":
            yield Message("assistant", _assistant(parts, f"{where}.content"))
        case "user":
            yield from _user(parts, f"{where}.content")
        case _:
            raise BadRequest(f"{where}.role: must be user, assistant or system, not {role!r}")


def _user(parts: Sequence[Any], where: str) -> Iterator[Message]:
    said: list[Text] = []
    for i, part in enumerate(parts):
        if object_at(part, f"{where}.{i}").get("type") != "tool_result":
            said.append(Text(_text(part, f"{where}.{i}")))
            continue
        if said:
            yield Message("user", tuple(said))
            said = []
        yield Message("tool", (_result(part, f"{where}.{i}"),))
    if said or not parts:
        yield Message("user", tuple(said) or (Text(""),))


def _result(part: Mapping[str, Any], where: str) -> ToolResult:
    call_id = string_at(part.get("tool_use_id"), f"{where}.tool_use_id")
    text = "\n".join(_result_text(p, where) for p in parts_of(part.get("content"), f"{where}.content"))
    return ToolResult(call_id, text, part.get("is_error") is True)


def _result_text(part: Any, where: str) -> str:
    part = object_at(part, f"{where}.content")
    if part.get("type") == "text":
        return string_at(part.get("text"), f"{where}.content.text")
    return f"[{part.get('type')} omitted: this model reads text only]"


def _assistant(parts: Sequence[Any], where: str) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for i, part in enumerate(parts):
        at = f"{where}.{i}"
        match object_at(part, at).get("type"):
            case "thinking":
                blocks.append(Thinking(string_at(part.get("thinking"), at), str(part.get("signature") or "")))
            case "redacted_thinking":
                continue
            case "tool_use":
                call_id, name = string_at(part.get("id"), f"{at}.id"), string_at(part.get("name"), f"{at}.name")
                blocks.append(ToolCall(call_id, name, arguments_of(part.get("input"))))
            case _:
                blocks.append(Text(_text(part, at)))
    return tuple(b for b in blocks if not (isinstance(b, Text) and not b.text)) or (Text(""),)


def _tool(entry: Any, where: str) -> Tool:
    entry = object_at(entry, where)
    if entry.get("type") not in (None, "custom"):
        raise BadRequest(f"{where}.type: tools that the API runs itself are not supported, got {entry['type']!r}")
    name = string_at(entry.get("name"), f"{where}.name")
    schema = object_at(entry.get("input_schema") or {}, f"{where}.input_schema")
    return Tool(name, string_at(entry.get("description") or "", f"{where}.description"), schema)


# ---------------------------------------------------------------------------------------------------- writing


def _written(block: Block) -> dict[str, Any]:
    match block:
        case Thinking():
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": dict(block.arguments)}
    return {"type": "text", "text": block.text}


def _block_events(index: int, block: Block) -> Iterator[bytes]:
    match block:
        case Thinking():
            empty: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
            deltas: list[dict[str, Any]] = [
                {"type": "thinking_delta", "thinking": block.text},
                {"type": "signature_delta", "signature": block.signature},
            ]
        case ToolCall():
            empty = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": dumps(block.arguments).decode()}]
        case _:
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": block.text}]
    yield _event("content_block_start", {"index": index, "content_block": empty})
    for delta in deltas:
        yield _event("content_block_delta", {"index": index, "delta": delta})
    yield _event("content_block_stop", {"index": index})


def _stop_reason(reply: Reply) -> str:
    return {"length": "max_tokens", "tool_calls": "tool_use"}.get(reply.finish, "end_turn")


def _usage(reply: Reply, output_tokens: int) -> dict[str, int]:
    return {
        "input_tokens": reply.usage.prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
    }


def _event(kind: str, fields: Mapping[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dumps({"type": kind, **fields}) + b"\n\n"
