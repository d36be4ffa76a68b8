"""One turn, from a request in canonical form to a recorded reply.

place → render → middleware and guards → engine → parse → record → reply. A retry joins the turn that it repeats. Whoever
leaves takes the turn along, unless somebody else waits for it: the engine is told to abort and nothing is recorded.

The policy for ``finish_reason: abort``: the turn is recorded but neither delivered nor trained, and nothing is ever appended
to it. The client is told to try again, which is a new turn from the same point.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from agentrl.errors import BudgetExhausted, ContextOverflow, EngineUnavailable, SessionClosed
from agentrl.gateway.guards import BudgetGuard, SamplingPin, TurnTimeout
from agentrl.gateway.origin import FOREIGN
from agentrl.gateway.parts import READ, TurnParts
from agentrl.gateway.prompt import Prompt, render
from agentrl.gateway.sampler import Sampler
from agentrl.gateway.session import Flight, Session
from agentrl.middleware import CallNext, Middleware, TurnContext
from agentrl.types import ChatRequest, Reply, ToolCall, Turn


async def take_turn(
    parts: TurnParts, session: Session, request: ChatRequest, *, dialect: str, lane: str = "", size: int = 0
) -> Reply:
    """The reply to ``request``, recorded in ``session``. ``size``: of the request, in bytes.

    Raises: GatewayError, ContextOverflow, EngineError, TemplateError. Cancelling it is a client that leaves.
    """
    lane = session.origins.lane_of(dialect, request.client, lane)
    try:
        boarded = await _board(parts, session, request, dialect, lane, size)
        return boarded if isinstance(boarded, Reply) else await _wait(session, boarded)
    except (BudgetExhausted, ContextOverflow) as error:
        if lane != FOREIGN:
            session.exhausted = error.budget if isinstance(error, BudgetExhausted) else "context"
        raise


async def count_tokens(
    parts: TurnParts, session: Session, request: ChatRequest, *, lane: str = "", size: int = 0
) -> int:
    """How long the prompt of this request would be, were it sent now. Records nothing."""
    async with session.lock:
        session.check_open()
        return len((await _prepare(parts, session, request, lane, size)).ids)


async def _board(
    parts: TurnParts, session: Session, request: ChatRequest, dialect: str, lane: str, size: int
) -> Flight | Reply:
    """Start a turn, or find the one that this request repeats."""
    async with session.lock:
        session.check_open()
        prompt = await _prepare(parts, session, request, lane, size)
        session.check_open()
        repeated = prompt.placement.duplicate_of
        if repeated is not None:
            session.counters["retries_recognised"] += 1
            flight = session.flights.get(repeated)
            return flight if flight is not None else session.undelivered[repeated]
        turn_id = session.forest.begin(prompt.placement)
        session.origins.begun(turn_id, prompt.placement, foreign=session.origins.is_foreign(prompt.placement))
        session.turns += 1
        flight = Flight(asyncio.create_task(_fly(parts, session, request, prompt, turn_id, dialect)))
        session.flights[turn_id] = flight
        return flight


async def _prepare(parts: TurnParts, session: Session, request: ChatRequest, lane: str, size: int) -> Prompt:
    """Place and render."""
    placement = await parts.offload(size // READ, session.forest.place, request, lane=lane)
    new = sum(
        len(block.text) for message in placement.new for block in message.blocks if not isinstance(block, ToolCall)
    )
    return await parts.offload(new, render, parts.codec, session.forest, placement, request.tools)


async def _wait(session: Session, flight: Flight) -> Reply:
    flight.waiters += 1
    try:
        return await asyncio.shield(flight.task)
    except asyncio.CancelledError:
        if session.closed:
            raise SessionClosed("this session was closed while the turn was being sampled") from None
        if flight.task.cancelled() and not _leaving():
            raise EngineUnavailable("the turn that this request repeats was just given up; ask again") from None
        raise
    finally:
        flight.waiters -= 1
        if not flight.waiters and not flight.task.done():
            flight.task.cancel()


def _leaving() -> bool:
    """Whether it is the running task itself that is cancelled, and not what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _fly(
    parts: TurnParts, session: Session, request: ChatRequest, prompt: Prompt, turn_id: str, dialect: str
) -> Reply:
    """Sample and record; on any failure, and when everybody left, drop the turn."""
    sampler = Sampler(parts, session, request, prompt.ids, turn_id)
    context = TurnContext(
        session_id=session.id,
        rollout_id=session.rollout_id,
        request=request,
        dialect=dialect,
        prompt_tokens=len(prompt.ids),
        max_new_tokens=parts.context_tokens - len(prompt.ids),
        turns_so_far=session.turns - 1,
        tokens_so_far=session.tokens,
        started_at=time.time(),
    )
    clock = time.monotonic()
    try:
        reply = await _chain(parts, session, sampler)(context)
        sampler.check(reply)
        async with session.lock:
            turn = _record(session, prompt, sampler, context, clock)
            session.undelivered[turn_id], session.exhausted = reply, ""
    except BaseException:
        session.turns -= 1
        # Whoever leaves now may have joined while it was being given up: that is no reason to stop giving it up.
        await asyncio.shield(_give_up(parts, session, prompt, sampler, context, clock, turn_id))
        raise
    finally:
        session.flights.pop(turn_id, None)
    _announce(parts, session, turn)
    return reply


async def _give_up(
    parts: TurnParts,
    session: Session,
    prompt: Prompt,
    sampler: Sampler,
    context: TurnContext,
    clock: float,
    turn_id: str,
) -> None:
    """Drop the turn, or record what the engine has aborted."""
    async with session.lock:
        if not sampler.aborted:
            session.forest.drop(turn_id)
            session.counters["turns_dropped"] += 1
            return
        turn = _record(session, prompt, sampler, context, clock)
    _announce(parts, session, turn)


def _record(session: Session, prompt: Prompt, sampler: Sampler, context: TurnContext, clock: float) -> Turn:
    """Commit what was sampled and count it."""
    reply, generation = sampler.sampled
    foreign = reply.turn_id in session.origins.foreign
    turn = session.forest.commit(
        reply.turn_id,
        new_ids=prompt.new_ids,
        generation=generation,
        reply=reply.message,
        started_at=context.started_at,
        duration_sec=time.monotonic() - clock,
        trainable=not foreign,
        excluded=FOREIGN if foreign else "",
    )
    session.origins.answered(reply)
    session.counters["turns_foreign"] += foreign
    session.tokens += len(generation.ids)
    session.counters["control_tokens_neutralised"] += prompt.neutralised
    session.counters["malformed_tool_calls"] += sampler.malformed
    session.counters["generations_aborted"] += sampler.aborted
    return turn


def _announce(parts: TurnParts, session: Session, turn: Turn) -> None:
    if parts.on_turn is not None:
        parts.on_turn(session.rollout_id, turn)


def _chain(parts: TurnParts, session: Session, innermost: CallNext) -> CallNext:
    """Third-party middleware outside, guards inside, the sampler in the middle."""
    guards: list[Middleware] = [
        BudgetGuard(session.budgets, parts.context_tokens),
        SamplingPin(session.sampling or parts.sampling),
        TurnTimeout(parts.turn_timeout_sec),
    ]
    call = innermost
    for layer in reversed([*parts.middleware, *guards]):
        call = partial(layer, call_next=call)
    return call
