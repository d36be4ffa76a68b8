"""Reading fields of a request body: what must be there, of which type, or BadRequest with the field's path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.errors import BadRequest
from agentrl.gateway.wire import loads_object


def object_at(value: Any, where: str) -> Mapping[str, Any]:
    """``value``, which must be an object."""
    if not isinstance(value, dict):
        raise BadRequest(f"{where}: must be an object")
    return value


def list_at(value: Any, where: str) -> Sequence[Any]:
    """``value``, which must be an array; null counts as empty."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadRequest(f"{where}: must be an array")
    return value


def string_at(value: Any, where: str) -> str:
    """``value``, which must be a string."""
    if not isinstance(value, str):
        raise BadRequest(f"{where}: must be a string")
    return value


def limit_at(value: Any, where: str) -> int | None:
    """A number of tokens: a positive integer or null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{where}: must be a positive integer")
    return value


def stops_at(value: Any, where: str) -> tuple[str, ...]:
    """Stop strings: null, one string or an array of strings; empty ones are ignored."""
    items = [value] if isinstance(value, str) else list_at(value, where)
    return tuple(s for s in (string_at(item, where) for item in items) if s)


def arguments_of(raw: Any) -> Mapping[str, Any]:
    """Tool arguments as an object, whatever a client made of them."""
    if isinstance(raw, Mapping):
        return raw
    if isinstance(raw, str):
        try:
            return loads_object(raw.encode("utf-8", "replace") or b"{}")
        except BadRequest:
            pass
    return {"arguments": raw}


def parts_of(content: Any, where: str) -> Sequence[Any]:
    """Content as a list of parts: a string is one text part, null none."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list_at(content, where)


def text_of(part: Any, where: str, *, lenient: bool = False) -> str:
    """The text of one content part of OpenAI's APIs; ``lenient``: other media become a remark. Raises: BadRequest."""
    part = object_at(part, where)
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text", "refusal"):
        return string_at(part.get("refusal" if kind == "refusal" else "text"), where)
    if lenient:
        return f"[{kind} omitted: this model reads text only]"
    raise BadRequest(f"{where}: content of type {kind!r} is not supported, this model reads text only")
