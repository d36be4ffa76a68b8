"""Dialects: one wire API each, as pure translation without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.types import ChatRequest, Reply


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` below the session's root, such as ``/v1/messages``; ``kind`` is ``chat`` or ``count_tokens``."""

    path: str
    kind: str


class Dialect(Protocol):
    """One wire API. Unknown fields are tolerated."""

    @property
    def name(self) -> str:
        """Stable name, recorded with each turn."""
        ...

    @property
    def routes(self) -> Sequence[Route]:
        """The POST routes that it answers."""
        ...

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """The request in canonical form. Raises: BadRequest."""
        ...

    def reply(self, reply: Reply) -> Mapping[str, Any]:
        """The JSON of a non-streamed reply."""
        ...

    def events(self, reply: Reply) -> Iterable[bytes]:
        """The server-sent events of a streamed reply, each complete with its blank line; concatenated they carry
        exactly what :meth:`reply` does."""
        ...

    def ping(self) -> bytes:
        """What keeps an idle stream alive."""
        ...

    def count(self, tokens: int) -> Mapping[str, Any]:
        """The JSON that answers a ``count_tokens`` route."""
        ...

    def error_event(self, error: Exception) -> bytes:
        """The same error inside a stream that has already begun."""
        ...

    def error(self, error: Exception) -> tuple[int, Mapping[str, Any], Mapping[str, str]]:
        """(HTTP status, JSON body, extra headers) in the API's own shape: nothing of ours is a 400, nothing of the client's a 500."""
        ...
