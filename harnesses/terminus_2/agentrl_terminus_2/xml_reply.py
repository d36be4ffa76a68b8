"""Replies as one ``<response>`` with ``analysis``, ``plan``, ``commands`` and, optionally, ``task_complete``.

Not XML: keystrokes stand verbatim between their tags, entities are not decoded. Hence no XML parser.
"""

from __future__ import annotations

import re

from agentrl_terminus_2.reply import DEFAULT_DURATION_SEC, Keystrokes, Reply, glued, wrong_order

REQUIRED = ("analysis", "plan", "commands")
SECTIONS = (*REQUIRED, "task_complete")
_OPEN, _CLOSE = "<response>", "</response>"
_KEYSTROKES = re.compile(r"<keystrokes([^>]*)>(.*?)</keystrokes>", re.DOTALL)
_DURATION = re.compile(r"duration\s*=\s*[\"']([^\"']*)[\"']")
_UNQUOTED = re.compile(r"(\w+)\s*=\s*([^\"'\s>]+)")
_SINGLE_QUOTED = re.compile(r"(\w+)\s*=\s*'([^']*)'")
_TAG = re.compile(r"<(/?)([^\s<>/!?][^\s<>/]*)[^<>]*?(/?)>")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&apos;": "'"}
_EMPTY = (
    "Commands section is empty; not taking any action. If you want to wait a specific amount of time please use `sleep`, "
    "but if you're waiting for a command to finish then continue to wait."
)


def read_xml(text: str) -> Reply:
    """The first ``<response>`` of ``text``; one that is not closed ends with the text."""
    warnings = _outside(text)
    content = _response(text)
    if not content:
        return Reply(error="No <response> tag found", warnings=tuple(warnings))
    complete = bool(re.search(r"<task_complete>\s*true\s*</task_complete>", content, re.IGNORECASE))
    sections = {name: body for name in SECTIONS if (body := _section(content, name)) is not None}
    warnings += _doubts(content, sections)
    commands = sections.get("commands")
    if commands is None:
        return Reply(
            complete=complete, error="" if complete else "Missing <commands> section", warnings=tuple(warnings)
        )
    if not commands:
        return Reply(complete=complete, warnings=(*warnings, *([] if complete else [_EMPTY])))
    found, more = _commands(commands)
    return Reply(found, complete, warnings=(*warnings, *more))


def salvage_xml(text: str) -> Reply | None:
    """A reply cut by the length limit, if a whole response stands before the cut; None if it does not."""
    commands_end = text.find("</commands>")
    end = text.find(_CLOSE, commands_end) if commands_end >= 0 else -1
    if end < 0:
        return None
    reply = read_xml(text[: end + len(_CLOSE)])
    several = any("Only issue one" in warning for warning in reply.warnings)
    return None if reply.error or several else reply


def _outside(text: str) -> list[str]:
    start, end = text.find(_OPEN), text.find(_CLOSE)
    if start < 0:
        return []
    warnings = ["Extra text detected before <response> tag"] if text[:start].strip() else []
    if end >= 0 and text[end + len(_CLOSE) :].strip():
        warnings.append("Extra text detected after </response> tag")
        if (count := text.count(_OPEN)) > 1:
            warnings.append(_one_only("response", count))
    return warnings


def _one_only(tag: str, count: int) -> str:
    return f"IMPORTANT: Only issue one <{tag}> block at a time. You issued {count} and only the first was executed."


def _response(text: str) -> str:
    _, opened, rest = text.partition(_OPEN)
    return rest.partition(_CLOSE)[0].strip() if opened else ""


def _section(content: str, name: str) -> str | None:
    if match := re.search(rf"<{name}>(.*?)</{name}>", content, re.DOTALL):
        # Keystrokes keep their own white space; what surrounds them does not matter.
        return match.group(1).strip()
    return "" if re.search(rf"<{name}\s*/>", content) else None


def _doubts(content: str, sections: dict[str, str]) -> list[str]:
    warnings = [f"Missing <{name}> section" for name in REQUIRED if name not in sections]
    warnings += [
        f"Unknown tag found: <{tag}>, expected analysis/plan/commands/task_complete"
        for tag in dict.fromkeys(_top_level(content))
        if tag not in SECTIONS
    ]
    for name in SECTIONS:
        if (count := len(re.findall(rf"<{name}(?:\s|>|/>)", content))) > 1:
            warnings.append(_one_only(name, count) if name == "commands" else f"Multiple <{name}> sections found")
    positions = {n: match.start() for n in REQUIRED if (match := re.search(rf"<{n}(?:\s|>|/>)", content))}
    return warnings + wrong_order("Sections", REQUIRED, positions)


def _top_level(content: str) -> list[str]:
    """The tags that are direct children of the response."""
    depth, tags = 0, []
    for closing, name, self_closing in _TAG.findall(content):
        if closing:
            depth -= 1
            continue
        if depth == 0:
            tags.append(name)
        depth += not self_closing
    return tags


def _commands(section: str) -> tuple[tuple[Keystrokes, ...], list[str]]:
    warnings: list[str] = []
    commands: list[Keystrokes] = []
    rows = _KEYSTROKES.findall(section)
    for number, (attributes, keys) in enumerate(rows, start=1):
        warnings += _attribute_doubts(attributes, number)
        duration = _duration(attributes, number, warnings)
        if number < len(rows) and not keys.endswith("\n"):
            warnings.append(glued(number))
        commands.append(Keystrokes.clamped(keys, duration))
    warnings += [
        f"Warning: {entity} is read verbatim and not converted to {char}. NEVER USE {entity}, unless you want these exact "
        "characters to appear directly in the output."
        for entity, char in _ENTITIES.items()
        if entity in section
    ]
    if "\\r\\n" in section:
        warnings.append("Warning: \\r\\n line endings are not necessary - use \\n instead for simpler output")
    return tuple(commands), warnings


def _duration(attributes: str, number: int, warnings: list[str]) -> float:
    match = _DURATION.search(attributes)
    if match is None:
        warnings.append(f"Command {number}: Missing duration attribute, using default 1.0")
        return DEFAULT_DURATION_SEC
    try:
        return float(match.group(1))
    except ValueError:
        warnings.append(f"Command {number}: Invalid duration value '{match.group(1)}', using default 1.0")
        return DEFAULT_DURATION_SEC


def _attribute_doubts(attributes: str, number: int) -> list[str]:
    warnings = [
        f"Command {number}: Attribute '{name}' value should be quoted: {name}=\"{value}\""
        for name, value in _UNQUOTED.findall(attributes)
    ]
    warnings += [
        f"Command {number}: Use double quotes for attribute '{name}': {name}=\"{value}\""
        for name, value in _SINGLE_QUOTED.findall(attributes)
    ]
    return warnings + [
        f"Command {number}: Unknown attribute '{name}' - known attributes are: duration"
        for name in re.findall(r"(\w+)\s*=", attributes)
        if name != "duration"
    ]
