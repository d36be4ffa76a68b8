"""Middleware: a function around one turn of one session.

It observes, refuses (raise a :class:`~agentrl.errors.GatewayError`) or shortens (pass a smaller ``max_new_tokens``).
It may not alter sampled ids: the reply that it returns must be the reply that it got.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from agentrl.types import ChatRequest, Reply


@dataclass(frozen=True, slots=True)
class TurnContext:
    """One turn before it is sampled. ``turns_so_far`` and ``tokens_so_far`` (sampled) count the session;
    ``prompt_tokens`` is the length of this turn's prompt; ``max_new_tokens`` is what may still be sampled."""

    session_id: str
    rollout_id: str
    request: ChatRequest
    dialect: str
    prompt_tokens: int
    max_new_tokens: int
    turns_so_far: int
    tokens_so_far: int
    started_at: float


CallNext = Callable[[TurnContext], Awaitable[Reply]]


class Middleware(Protocol):
    """``async (turn, call_next) -> reply``. The first in ``AGENTRL_MIDDLEWARE`` is the outermost."""

    async def __call__(self, turn: TurnContext, call_next: CallNext) -> Reply:
        """Handle one turn. Raises: GatewayError to refuse it."""
        ...
