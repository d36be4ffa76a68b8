"""Replies as one JSON object: ``analysis``, ``plan``, ``commands`` and, optionally, ``task_complete``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentrl_terminus_2.reply import DEFAULT_DURATION_SEC, Keystrokes, Reply, corrected, glued, wrong_order

REQUIRED = ("analysis", "plan", "commands")
_NESTED = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", re.DOTALL)


def read_json(text: str) -> Reply:
    """The first JSON object of ``text``, mended if that makes it readable."""
    first = _read(text)
    if not first.error:
        return first
    for what, mended in _mendings(text, first.error):
        reply = _read(mended)
        if not reply.error:
            return replace(reply, warnings=(corrected(what), *reply.warnings))
    return first


def _mendings(text: str, error: str) -> Iterator[tuple[str, str]]:
    missing = text.count("{") - text.count("}")
    if missing > 0 and error.startswith(("Invalid JSON", "No valid JSON")):
        yield "Fixed incomplete JSON by adding missing closing brace", text + "}" * missing
    for match in _NESTED.findall(text):
        if _is_json(match):
            yield "Extracted JSON from mixed content", match
            return


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read(text: str) -> Reply:
    span = _object_span(text)
    if span is None:
        return Reply(error="No valid JSON found in response", warnings=("No valid JSON object found",))
    content = text[span[0] : span[1]]
    warnings = [f"Extra text detected {where} JSON object" for where, rest in _around(text, span) if rest.strip()]
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        shown = f"Content: {content!r}" if len(content) < 200 else f"Content preview: {content[:100]!r}..."
        return Reply(error=f"Invalid JSON: {error} | {shown}", warnings=tuple(warnings))
    if problem := _misshapen(data):
        return Reply(error=problem, warnings=tuple(warnings))
    warnings += _doubts(data, content)
    complete = _is_true(data.get("task_complete", False))
    commands, problem = _commands(data["commands"], warnings)
    if problem and complete:  # whoever says that the work is done needs no command
        return Reply(complete=True, warnings=(*warnings, problem))
    return Reply(commands, complete, problem, tuple(warnings))


def _object_span(text: str) -> tuple[int, int] | None:
    """Where the first balanced object outside of strings stands."""
    depth, start, in_string, escaped = 0, -1, False, False
    for i, char in enumerate(text):
        if escaped or char == "\\":
            escaped = not escaped
        elif char == '"':
            in_string = not in_string
        elif not in_string and char == "{":
            start = i if depth == 0 else start
            depth += 1
        elif not in_string and char == "}":
            depth -= 1
            if depth == 0 and start >= 0:
                return start, i + 1
    return None


def _around(text: str, span: tuple[int, int]) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("before", text[: span[0]]), ("after", text[span[1] :])


def _misshapen(data: dict[str, Any]) -> str:
    missing = [name for name in REQUIRED if name not in data]
    if missing:
        return f"Missing required fields: {', '.join(missing)}"
    return "" if isinstance(data["commands"], list) else "Field 'commands' must be an array"


def _doubts(data: dict[str, Any], content: str) -> list[str]:
    warnings = [f"Field '{n}' should be a string" for n in ("analysis", "plan") if not isinstance(data[n], str)]
    found = {n: match.start() for n in REQUIRED if (match := re.search(rf'"{n}"\s*:', content))}
    warnings += wrong_order("Fields", REQUIRED, found)
    if not isinstance(data.get("task_complete"), bool | str | None):
        warnings.append("Field 'task_complete' should be a boolean or string")
    return warnings


def _is_true(value: object) -> bool:
    return value.lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


def _commands(rows: list[Any], warnings: list[str]) -> tuple[tuple[Keystrokes, ...], str]:
    """The commands and an error; with an error there are no commands."""
    commands: list[Keystrokes] = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            return (), f"Command {number} must be an object"
        if "keystrokes" not in row:
            return (), f"Command {number} missing required 'keystrokes' field"
        keys = row["keystrokes"]
        if not isinstance(keys, str):
            return (), f"Command {number} 'keystrokes' must be a string"
        duration = _duration(row, number, warnings)
        if unknown := [name for name in row if name not in ("keystrokes", "duration")]:
            warnings.append(f"Command {number}: Unknown fields: {', '.join(unknown)}")
        if number < len(rows) and keys and not keys.endswith("\n"):
            warnings.append(glued(number))
        commands.append(Keystrokes.clamped(keys, duration))
    return tuple(commands), ""


def _duration(row: dict[str, Any], number: int, warnings: list[str]) -> float:
    if "duration" not in row:
        warnings.append(f"Command {number}: Missing duration field, using default 1.0")
        return DEFAULT_DURATION_SEC
    value = row["duration"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        warnings.append(f"Command {number}: Invalid duration value, using default 1.0")
        return DEFAULT_DURATION_SEC
    return min(float(value), 1e9) if isinstance(value, float) else float(min(value, 10**9))
