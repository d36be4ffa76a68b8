"""What a gateway does with a request, and the way that trains: sampled by the engine, recorded with its tokens.

The other way is :mod:`agentrl.gateway.relay`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from agentrl.gateway.parts import TurnParts
from agentrl.gateway.session import Session
from agentrl.gateway.turn import count_tokens, take_turn
from agentrl.types import ChatRequest, Reply

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Turns(Protocol):
    """How requests become replies. ``size``: of the request, in bytes; ``lane``: the client's name for its chain."""

    async def take(self, session: Session, request: ChatRequest, *, dialect: str, lane: str, size: int) -> Reply:
        """One turn. Raises: GatewayError, ContextOverflow, EngineError, TemplateError. Cancelling it is a client that leaves."""
        ...

    async def count(self, session: Session, request: ChatRequest, *, lane: str, size: int) -> int:
        """How many tokens the prompt of this request has."""
        ...

    async def offload(self, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``work`` where it holds nobody up."""
        ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """Turns whose tokens are known, see :mod:`agentrl.gateway.turn`."""

    parts: TurnParts

    async def take(self, session: Session, request: ChatRequest, *, dialect: str, lane: str, size: int) -> Reply:
        """Sample and record."""
        return await take_turn(self.parts, session, request, dialect=dialect, lane=lane, size=size)

    async def count(self, session: Session, request: ChatRequest, *, lane: str, size: int) -> int:
        """Exactly."""
        return await count_tokens(self.parts, session, request, lane=lane, size=size)

    async def offload(self, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """In the pool when it is big."""
        return await self.parts.offload(size, work, *args, **kwargs)
