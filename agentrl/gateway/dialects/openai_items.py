"""The input of OpenAI Responses: its items and tools in canonical form.

Items that the model said (reasoning, messages, calls) and that stand together are one message. Refused are items that only
the API's own store can resolve (``item_reference``) and calls of tools that the API runs itself.

Tools: ``function`` is offered as it is, ``custom`` as a function with the one string ``input``, its grammar added to its
description. Everything else is run by the API itself (``web_search``, ``mcp``, …) or groups tools for it (``namespace``);
agents send these unasked, so they are left out instead of refused, and the model never hears of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from agentrl.errors import BadRequest
from agentrl.gateway.dialects.content import arguments_of, object_at, parts_of, string_at, text_of
from agentrl.types import Block, Message, Text, Thinking, Tool, ToolCall, ToolResult

INPUT = "input"
"""The one argument of a freeform tool."""
_FREEFORM = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}


def messages_of(items: Any) -> tuple[Message, ...]:
    """The conversation in ``input``: a string or a list of items. Raises: BadRequest."""
    if isinstance(items, str):
        return (Message("user", (Text(items),)),)
    if not isinstance(items, list) or not items:
        raise BadRequest("input: must be a string or a non-empty array of items")
    said = [_item(object_at(item, f"input.{i}"), f"input.{i}") for i, item in enumerate(items)]
    return tuple(_joined(said))


def tools_of(entries: Sequence[Any]) -> tuple[Tool, ...]:
    """The tools that are offered to the model. Raises: BadRequest."""
    tools = (_tool(object_at(entry, f"tools.{i}"), f"tools.{i}") for i, entry in enumerate(entries))
    return tuple(tool for tool in tools if tool is not None)


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    """Neighbouring assistant messages as one; what was nothing but empty is one empty text."""
    for said, run in groupby(messages, key=lambda m: m.role == "assistant"):
        if not said:
            yield from run
        else:
            yield Message("assistant", tuple(b for m in run for b in m.blocks) or (Text(""),))


def _item(item: Mapping[str, Any], where: str) -> Message:
    kind = item.get("type", "message")
    match kind:
        case "message":
            return _message(item, where)
        case "reasoning":
            return Message("assistant", _thought(item, where))
        case "function_call":
            return Message("assistant", (_call(item, arguments_of(item.get("arguments")), where),))
        case "custom_tool_call":
            text = string_at(item.get(INPUT), f"{where}.{INPUT}")
            return Message("assistant", (_call(item, {INPUT: text}, where),))
        case "function_call_output" | "custom_tool_call_output":
            parts = parts_of(item.get("output"), f"{where}.output")
            text = "\n".join(text_of(p, f"{where}.output", lenient=True) for p in parts)
            return Message("tool", (ToolResult(string_at(item.get("call_id"), f"{where}.call_id"), text),))
        case "item_reference":
            raise BadRequest(f"{where}: nothing is stored here, send the item itself instead of a reference")
    raise BadRequest(f"{where}.type: items of type {kind!r} are not supported")


def _message(item: Mapping[str, Any], where: str) -> Message:
    texts = [text_of(p, f"{where}.content") for p in parts_of(item.get("content"), f"{where}.content")]
    match item.get("role"):
        case "assistant":
            return Message("assistant", tuple(Text(text) for text in texts if text))
        case "user":
            return Message("user", tuple(map(Text, texts)) or (Text(""),))
        case "system" | "developer":
            return Message("system", tuple(map(Text, texts)) or (Text(""),))
    raise BadRequest(f"{where}.role: must be user, assistant, system or developer, not {item.get('role')!r}")


def _thought(item: Mapping[str, Any], where: str) -> tuple[Block, ...]:
    """The reasoning itself, else its summary; a client that kept neither said nothing."""
    for key in ("content", "summary"):
        parts = parts_of(item.get(key), f"{where}.{key}")
        texts = [string_at(object_at(p, f"{where}.{key}").get("text"), f"{where}.{key}") for p in parts]
        if any(texts):
            return (Thinking("\n".join(texts)),)
    return ()


def _call(item: Mapping[str, Any], arguments: Mapping[str, Any], where: str) -> ToolCall:
    call_id = string_at(item.get("call_id"), f"{where}.call_id")
    return ToolCall(call_id, string_at(item.get("name"), f"{where}.name"), arguments)


def _tool(entry: Mapping[str, Any], where: str) -> Tool | None:
    kind = entry.get("type")
    if kind not in ("function", "custom"):
        return None
    name = string_at(entry.get("name"), f"{where}.name")
    description = string_at(entry.get("description") or "", f"{where}.description")
    if kind == "custom":
        return Tool(name, description + _grammar(entry.get("format")), _FREEFORM, freeform=True)
    return Tool(name, description, object_at(entry.get("parameters") or {}, f"{where}.parameters"))


def _grammar(form: Any) -> str:
    """What a model must know about the form of the text."""
    if not isinstance(form, Mapping) or form.get("type") != "grammar":
        return ""
    return f"\n\nThe input follows this {form.get('syntax', '')} grammar:\n{form.get('definition', '')}"
