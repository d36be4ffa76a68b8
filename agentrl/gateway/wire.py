"""JSON as it crosses the wire: tolerant when read, unbreakable when written.

Clients send lone surrogates and NUL; models write them into tool arguments. Neither may break a reply. Not here: what the
JSON means (:mod:`agentrl.gateway.dialects`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from agentrl.errors import BadRequest


def loads_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``; lone surrogates and invalid UTF-8 become U+FFFD. Raises: BadRequest."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _loads_tolerantly(raw)
    if not isinstance(value, dict):
        raise BadRequest("the request body must be a JSON object")
    return value


def dumps(value: Any) -> bytes:
    """UTF-8 JSON of ``value``, whatever strings and numbers are in it."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson knows neither lone surrogates nor integers beyond 64 bits; both occur in what models write.
        return json.dumps(scrub(value), ensure_ascii=False, separators=(",", ":")).encode()


def scrub(value: Any) -> Any:
    """``value`` with every lone surrogate in it replaced by U+FFFD; mappings and sequences are copied."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {scrub(key): scrub(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    return value


def _loads_tolerantly(raw: bytes) -> Any:
    try:
        return scrub(json.loads(raw.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request body is not valid JSON: {error}") from error
