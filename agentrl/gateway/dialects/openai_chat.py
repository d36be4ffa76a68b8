"""OpenAI Chat Completions (``/v1/chat/completions``).

Usage is always in the last chunk of a stream, beside its ``finish_reason``: clients that asked for it find it there, and
clients that index ``choices[0]`` of every chunk never meet an empty list.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl.dialect import Route
from agentrl.errors import BadRequest
from agentrl.gateway.dialects.content import (
    arguments_of,
    limit_at,
    list_at,
    object_at,
    parts_of,
    stops_at,
    string_at,
    text_of,
)
from agentrl.gateway.dialects.errors import openai_error
from agentrl.gateway.wire import dumps
from agentrl.types import Block, ChatRequest, Message, Reply, Text, Thinking, Tool, ToolCall, ToolResult


class OpenAIChat:
    """Chat Completions, streamed and not."""

    name = "openai_chat"
    routes: Sequence[Route] = (Route("/v1/chat/completions", "chat"),)

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """The request in canonical form. Raises: BadRequest."""
        if body.get("n") not in (None, 1):
            raise BadRequest("n: only one choice can be sampled at a time")
        entries = list_at(body.get("messages"), "messages")
        if not entries:
            raise BadRequest("messages: must not be empty")
        cap = body.get("max_completion_tokens")
        return ChatRequest(
            model=string_at(body.get("model", ""), "model"),
            messages=tuple(_message(object_at(m, f"messages.{i}"), f"messages.{i}") for i, m in enumerate(entries)),
            tools=tuple(_tool(t, f"tools.{i}") for i, t in enumerate(list_at(body.get("tools"), "tools"))),
            max_tokens=limit_at(body.get("max_tokens") if cap is None else cap, "max_completion_tokens"),
            stream=body.get("stream") is True,
            stop=stops_at(body.get("stop"), "stop"),
        )

    def reply(self, reply: Reply) -> Mapping[str, Any]:
        """The JSON of a non-streamed reply."""
        message: dict[str, Any] = {"role": "assistant", "refusal": None, **_said(reply)}
        calls = _calls(reply)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, reply: Reply) -> Iterable[bytes]:
        """The reply as chunks: who speaks, what was thought and said, each call, the end, ``[DONE]``."""
        head = _head(reply, "chat.completion.chunk")
        deltas: list[dict[str, Any]] = [{"role": "assistant", **_said(reply)}]
        deltas += [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(_calls(reply))]
        for delta in deltas:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield _event({**head, "choices": [choice]})
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish(reply)}
        yield _event({**head, "choices": [last], "usage": _usage(reply)})
        yield b"data: [DONE]\n\n"

    def ping(self) -> bytes:
        """A comment line."""
        return b": ping\n\n"

    def count(self, tokens: int) -> Mapping[str, Any]:
        """This API has no such route; the shape is its ``usage``."""
        return {"prompt_tokens": tokens}

    def error_event(self, error: Exception) -> bytes:
        """An error inside a stream that has already begun."""
        return _event(self.error(error)[1])

    def error(self, error: Exception) -> tuple[int, Mapping[str, Any], Mapping[str, str]]:
        """(HTTP status, JSON body, extra headers)."""
        return openai_error(error)


# ---------------------------------------------------------------------------------------------------- reading


def _message(entry: Mapping[str, Any], where: str) -> Message:
    role, content = entry.get("role"), entry.get("content")
    match role:
        case "system" | "developer":
            return Message("system", _texts(content, f"{where}.content"))
        case "user":
            return Message("user", _texts(content, f"{where}.content"))
        case "assistant":
            return Message("assistant", _assistant(entry, where))
        case "tool":
            call_id = string_at(entry.get("tool_call_id", ""), f"{where}.tool_call_id")
            text = "\n".join(
                text_of(p, f"{where}.content", lenient=True) for p in parts_of(content, f"{where}.content")
            )
            return Message("tool", (ToolResult(call_id, text),))
    raise BadRequest(f"{where}.role: must be system, developer, user, assistant or tool, not {role!r}")


def _texts(content: Any, where: str) -> tuple[Text, ...]:
    return tuple(Text(text_of(p, where)) for p in parts_of(content, where)) or (Text(""),)


def _assistant(entry: Mapping[str, Any], where: str) -> tuple[Block, ...]:
    blocks: list[Block] = []
    thought = entry.get("reasoning_content") or entry.get("reasoning")
    if isinstance(thought, str):
        blocks.append(Thinking(thought))
    said = (text_of(p, f"{where}.content") for p in parts_of(entry.get("content"), f"{where}.content"))
    blocks += [Text(text) for text in said if text]
    for i, call in enumerate(list_at(entry.get("tool_calls"), f"{where}.tool_calls")):
        at = f"{where}.tool_calls.{i}"
        function = object_at(object_at(call, at).get("function"), f"{at}.function")
        name = string_at(function.get("name"), f"{at}.function.name")
        blocks.append(ToolCall(str(call.get("id", "")), name, arguments_of(function.get("arguments"))))
    return tuple(blocks) or (Text(""),)


def _tool(entry: Any, where: str) -> Tool:
    entry = object_at(entry, where)
    if entry.get("type", "function") != "function":
        raise BadRequest(f"{where}.type: only function tools are supported, not {entry['type']!r}")
    function = object_at(entry.get("function"), f"{where}.function")
    name = string_at(function.get("name"), f"{where}.function.name")
    parameters = object_at(function.get("parameters") or {}, f"{where}.function.parameters")
    return Tool(name, string_at(function.get("description") or "", f"{where}.function.description"), parameters)


# ---------------------------------------------------------------------------------------------------- writing


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{reply.turn_id}", "object": kind, "created": int(time.time()), "model": reply.model}


def _said(reply: Reply) -> dict[str, Any]:
    """``content``, and ``reasoning_content`` when the model reasoned."""
    text = "\n".join(b.text for b in reply.message.blocks if isinstance(b, Text))
    thought = "\n".join(b.text for b in reply.message.blocks if isinstance(b, Thinking))
    said: dict[str, Any] = {"content": text or None}
    if thought:
        said["reasoning_content"] = thought
    return said


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"id": b.id, "type": "function", "function": {"name": b.name, "arguments": dumps(b.arguments).decode()}}
        for b in reply.message.blocks
        if isinstance(b, ToolCall)
    ]


def _finish(reply: Reply) -> str:
    return {"length": "length", "tool_calls": "tool_calls"}.get(reply.finish, "stop")


def _usage(reply: Reply) -> dict[str, Any]:
    prompt, completion = reply.usage.prompt, reply.usage.completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _event(payload: Mapping[str, Any]) -> bytes:
    return b"data: " + dumps(payload) + b"\n\n"
