"""Turns that somebody else's model answers: an agent can be evaluated with any model behind an OpenAI- or
Anthropic-compatible API.

The agent still talks to our gateway, in whatever API it speaks; budgets and middleware hold as ever. What is missing is
tokens: nothing is rendered, and nothing can be trained or verified. Prompts are long when the other side says so.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from agentrl.errors import BudgetExhausted, ContextOverflow, SessionClosed
from agentrl.gateway.guards import BudgetGuard, SamplingPin, SamplingPolicy, TurnTimeout
from agentrl.gateway.session import Flight, Session
from agentrl.gateway.upstream import Upstream
from agentrl.middleware import CallNext, Middleware, TurnContext
from agentrl.types import ChatRequest, Reply

_P = ParamSpec("_P")
_T = TypeVar("_T")

RELAYED = "turns_relayed"
"""The counter of a session's answered turns; such a trajectory has no turns."""
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Relay:
    """Implements :class:`agentrl.gateway.turns.Turns` over another model."""

    upstream: Upstream
    sampling: SamplingPolicy
    middleware: Sequence[Middleware]
    context_tokens: int
    turn_timeout_sec: float

    async def take(self, session: Session, request: ChatRequest, *, dialect: str, lane: str, size: int) -> Reply:
        """The other model's answer, counted in ``session``. Raises: GatewayError, ContextOverflow, EngineError."""
        session.check_open()
        turn = TurnContext(
            session_id=session.id,
            rollout_id=session.rollout_id,
            request=request,
            dialect=dialect,
            prompt_tokens=0,
            max_new_tokens=self.context_tokens,
            turns_so_far=session.turns,
            tokens_so_far=session.tokens,
            started_at=time.time(),
        )
        session.turns += 1
        try:
            reply = await self._fly(session, asyncio.ensure_future(self._chain(session)(turn)))
        except BaseException as error:
            session.turns -= 1
            if isinstance(error, BudgetExhausted | ContextOverflow):
                session.exhausted = error.budget if isinstance(error, BudgetExhausted) else "context"
            raise
        session.exhausted = ""
        session.tokens += reply.usage.completion
        session.counters[RELAYED] += 1
        session.counters["tokens_prompted"] += reply.usage.prompt
        session.counters["tokens_answered"] += reply.usage.completion
        return reply

    async def count(self, session: Session, request: ChatRequest, *, lane: str, size: int) -> int:
        """A guess: only the other side knows its tokenizer."""
        session.check_open()
        return size // _CHARS_PER_TOKEN

    async def offload(self, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Here: an evaluation has few sessions."""
        return work(*args, **kwargs)

    def _chain(self, session: Session) -> CallNext:
        """As for recorded turns: third-party middleware outside, guards inside."""
        guards: list[Middleware] = [
            BudgetGuard(session.budgets, self.context_tokens),
            SamplingPin(session.sampling or self.sampling),
            TurnTimeout(self.turn_timeout_sec),
        ]
        call: CallNext = partial(self._ask, session)
        for layer in reversed([*self.middleware, *guards]):
            call = partial(layer, call_next=call)
        return call

    async def _fly(self, session: Session, answering: asyncio.Task[Reply]) -> Reply:
        """Wait, so that closing the session ends the call."""
        turn_id = secrets.token_hex(8)
        session.flights[turn_id] = Flight(answering, waiters=1)
        try:
            return await answering
        except asyncio.CancelledError:
            if session.closed:
                raise SessionClosed("this session was closed while the turn was being answered") from None
            raise
        finally:
            session.flights.pop(turn_id, None)

    async def _ask(self, session: Session, turn: TurnContext) -> Reply:
        """The innermost call."""
        request, turn_id = turn.request, secrets.token_hex(8)
        upstream, sampling = session.upstream or self.upstream, session.sampling or self.sampling
        answer = await upstream.ask(request, turn.max_new_tokens, sampling)
        return Reply(answer.message, answer.finish, answer.usage, turn_id, request.model, request.tools)
