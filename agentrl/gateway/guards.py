"""The middleware that every turn passes through: what a rollout may spend, and who decides how it samples.

Guards run inside all third-party middleware, so nothing outside can raise what they lowered.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from agentrl.errors import BudgetExhausted, ContextOverflow, EngineUnavailable
from agentrl.gateway.session import Budgets
from agentrl.middleware import CallNext, TurnContext
from agentrl.types import Reply


@dataclass(frozen=True, slots=True)
class SamplingPolicy:
    """How the run samples, whatever a client asks for. ``top_k`` -1: off. ``max_new_tokens``: of one turn."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_new_tokens: int = 4096


@dataclass(frozen=True, slots=True)
class BudgetGuard:
    """Refuses a turn that the session cannot pay for, shortens one that it can pay in part, ends one when time is up."""

    budgets: Budgets
    context_tokens: int

    async def __call__(self, turn: TurnContext, call_next: CallNext) -> Reply:
        """Raises: BudgetExhausted (turn, token, time), ContextOverflow."""
        budgets = self.budgets
        if budgets.max_turns and turn.turns_so_far >= budgets.max_turns:
            raise BudgetExhausted("turn", f"the rollout's budget of {budgets.max_turns} turns is used up")
        if budgets.max_tokens and turn.tokens_so_far >= budgets.max_tokens:
            raise BudgetExhausted("token", f"the rollout's budget of {budgets.max_tokens} sampled tokens is used up")
        # SGLang refuses a request whose prompt and new tokens together fill its context.
        room = self.context_tokens - 1 - turn.prompt_tokens
        if room < 1:
            raise ContextOverflow(turn.prompt_tokens, self.context_tokens - 2)
        if budgets.max_tokens:
            room = min(room, budgets.max_tokens - turn.tokens_so_far)
        return await self._in_time(replace(turn, max_new_tokens=min(turn.max_new_tokens, room)), call_next)

    async def _in_time(self, turn: TurnContext, call_next: CallNext) -> Reply:
        left = None if self.budgets.deadline is None else self.budgets.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise BudgetExhausted("time", "the rollout's time is up")
        try:
            async with asyncio.timeout(left) as limit:
                return await call_next(turn)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise BudgetExhausted("time", "the rollout's time ran out while this turn was sampled") from error


@dataclass(frozen=True, slots=True)
class SamplingPin:
    """The run's limit of new tokens holds; a client's ``max_tokens`` can only lower it.

    Temperature, top-p and top-k of a client never reach this far: :class:`~agentrl.types.ChatRequest` has no place for them.
    """

    sampling: SamplingPolicy

    async def __call__(self, turn: TurnContext, call_next: CallNext) -> Reply:
        """Lower ``max_new_tokens``."""
        limit = min(turn.max_new_tokens, self.sampling.max_new_tokens)
        if turn.request.max_tokens is not None:
            limit = min(limit, max(1, turn.request.max_tokens))
        return await call_next(replace(turn, max_new_tokens=limit))


@dataclass(frozen=True, slots=True)
class TurnTimeout:
    """One turn may take this long; then it is given up and the client is told to try again."""

    timeout_sec: float

    async def __call__(self, turn: TurnContext, call_next: CallNext) -> Reply:
        """Raises: EngineUnavailable."""
        try:
            async with asyncio.timeout(self.timeout_sec) as limit:
                return await call_next(turn)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise EngineUnavailable(f"the engine did not finish this turn within {self.timeout_sec:g} s") from error
