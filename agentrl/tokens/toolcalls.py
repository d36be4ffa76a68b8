"""How models spell tool calls in text: one small table, and one policy for calls that are malformed.

The policy, the same in training and evaluation: a call that cannot be read (broken JSON, no name, arguments that are no
object, never closed) stays visible text, letter by letter, and is counted. Nothing is repaired. The one leniency: raw line breaks
inside JSON strings are accepted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.tokens.plain import well_formed
from agentrl.types import Tool


@dataclass(frozen=True, slots=True)
class Call:
    """A readable call, not yet minted."""

    name: str
    arguments: Mapping[str, Any]


Reader = Callable[[str, Sequence[Tool]], Sequence[Call]]
"""The calls that a span holds; none: it is malformed."""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One spelling. ``marks``: strings that a chat template of this format contains; ``span`` finds calls, its group 1
    is what ``read`` reads; ``opener`` that is left in the text is a malformed call."""

    name: str
    marks: tuple[str, ...]
    span: re.Pattern[str]
    opener: re.Pattern[str]
    read: Reader

    def split(self, text: str, tools: Sequence[Tool]) -> tuple[list[str | Call], int]:
        """The reply's texts and calls in their order, and the number of malformed calls."""
        parts: list[str | Call] = [""]
        position = 0
        for match in self.span.finditer(text):
            calls = self.read(match[1], tools)
            if calls:
                parts[-1] = text[position : match.start()]
                parts += [part for call in calls for part in (call, "")]
                position = match.end()
        parts[-1] = text[position:]
        return parts, sum(len(self.opener.findall(p)) for p in parts if isinstance(p, str))


def format_of(template: str) -> ToolFormat | None:
    """The format that a chat template teaches, or None for a template without tools."""
    return next((f for f in FORMATS if all(mark in template for mark in f.marks)), None)


def _read_json(body: str, tools: Sequence[Tool], key: str = "arguments") -> Sequence[Call]:
    call = _call(_loads(body), key)
    return () if call is None else (call,)


def _read_list(body: str, tools: Sequence[Tool]) -> Sequence[Call]:
    """Calls as one list: all of them are readable, or none is."""
    entries = _loads(body)
    calls = [_call(entry, "arguments") for entry in entries] if isinstance(entries, list) else []
    return () if None in calls else [call for call in calls if call]


def _loads(body: str) -> Any:
    """What the JSON says; None if it is none."""
    try:
        return _clean(json.loads(body, strict=False))
    except (ValueError, RecursionError):
        return None


def _call(entry: Any, key: str) -> Call | None:
    if not isinstance(entry, dict):
        return None
    name, arguments = entry.get("name"), entry.get(key, {})
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return Call(name, arguments)


def _read_pairs(body: str, tools: Sequence[Tool]) -> Sequence[Call]:
    name, _, rest = body.partition("\n")
    if not name.strip() or _PAIR.sub("", rest).strip():
        return ()
    types = _types(name.strip(), tools)
    arguments = {k.strip(): _typed(v, types.get(k.strip())) for k, v in _PAIR.findall(rest)}
    return (Call(name.strip(), arguments),)


def _read_named(body: str, tools: Sequence[Tool]) -> Sequence[Call]:
    """A name, then the arguments as JSON behind ``[ARGS]`` or in a fence."""
    match = _NAMED.fullmatch(body)
    if match is None:
        return ()
    arguments = _loads(match[2])
    return (Call(match[1], arguments),) if isinstance(arguments, dict) else ()


def _read_llama(body: str, tools: Sequence[Tool]) -> Sequence[Call]:
    return _read_json(body, tools, key="parameters")


def _read_xml(body: str, tools: Sequence[Tool]) -> Sequence[Call]:
    match = _FUNCTION.fullmatch(body)
    if match is None:
        return ()
    name, types = match[1], _types(match[1], tools)
    rest = _PARAMETER.sub("", match[2])
    if rest.strip():
        return ()
    return (Call(name, {k: _typed(v, types.get(k)) for k, v in _PARAMETER.findall(match[2])}),)


def _types(name: str, tools: Sequence[Tool]) -> Mapping[str, Any]:
    return next((t.parameters.get("properties", {}) for t in tools if t.name == name), {})


def _typed(text: str, schema: Any) -> Any:
    """A parameter's value: verbatim where the schema says string or nothing, JSON elsewhere if it is JSON."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind in (None, "string"):
        return text
    try:
        return _clean(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _clean(value: Any) -> Any:
    """A value that any JSON writer can write again. Raises: ValueError for NaN and infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no JSON")
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(k): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, list) else value


_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_NAMED = re.compile(r"(?:function<｜tool▁sep｜>)?\s*([\w.-]+)(?:\[ARGS\]|\s*```json\n)(.*?)(?:\n```)?\s*", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_TAG = re.compile(r"<tool_call>")

FORMATS: tuple[ToolFormat, ...] = (
    ToolFormat("xml", ("<tool_call>", "<function=", "<parameter="), _TAGGED, _TAG, _read_xml),
    ToolFormat("glm", ("<tool_call>", "<arg_key>"), _TAGGED, _TAG, _read_pairs),
    ToolFormat("hermes", ("<tool_call>",), _TAGGED, _TAG, _read_json),
    ToolFormat(
        "llama3",
        ("ipython", '"parameters"'),
        re.compile(r"\A\s*(?:<\|python_tag\|>)?(\{.*\})\s*\Z", re.DOTALL),
        re.compile(r'\A\s*(?:<\|python_tag\|>|\{"name")'),
        _read_llama,
    ),
    ToolFormat(
        "deepseek",
        ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
        re.compile(
            r"(?:<｜tool▁calls▁begin｜>)?\s*<｜tool▁call▁begin｜>(.*?)<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?",
            re.DOTALL,
        ),
        re.compile("<｜tool▁call▁begin｜>"),
        _read_named,
    ),
    ToolFormat(
        "mistral",
        ("[TOOL_CALLS]", "[ARGS]"),
        re.compile(r"\[TOOL_CALLS\]((?:(?!\[TOOL_CALLS\]).)+)", re.DOTALL),
        re.compile(r"\[TOOL_CALLS\]"),
        _read_named,
    ),
    ToolFormat(
        "mistral-list",
        ("[TOOL_CALLS]",),
        re.compile(r"\[TOOL_CALLS\]\s*(\[.*\])\s*\Z", re.DOTALL),
        re.compile(r"\[TOOL_CALLS\]"),
        _read_list,
    ),
)
"""Looked through in this order: the first whose marks are all in the template."""
