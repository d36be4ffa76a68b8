"""One rollout's side of the gateway: its token, its tree of turns, what it may still spend, and what is being sampled.

A session decides nothing about turns (:mod:`agentrl.gateway.turn` does); it is the state that turns share.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrl.errors import SessionClosed
from agentrl.gateway.evidence import CallLog
from agentrl.gateway.origin import Origins
from agentrl.tokens.forest import Forest
from agentrl.types import Reply, Trajectory

if TYPE_CHECKING:
    from agentrl.gateway.guards import SamplingPolicy
    from agentrl.gateway.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a rollout may spend; 0 means no limit.

    ``max_turns``: model calls. ``max_tokens``: sampled tokens. ``deadline``: when time is up, on :func:`time.monotonic`'s clock.
    """

    max_turns: int = 0
    max_tokens: int = 0
    deadline: float | None = None


@dataclass(slots=True)
class Flight:
    """A turn that is being sampled. It is cancelled when the last of its ``waiters`` (client connections) has left."""

    task: asyncio.Task[Reply]
    waiters: int = 0


@dataclass(slots=True)
class Session:
    """State of one session.

    ``turns`` counts turns begun and not dropped, ``tokens`` the sampled ids of recorded ones. ``exhausted`` names the budget
    that refused a turn last (``turn``, ``token``, ``context``, ``time``), empty when none did. ``undelivered`` keeps replies until
    a client has them, for retries. ``sampling`` and ``upstream``: in place of the gateway's own. ``used_at``: when the last request
    came, on :func:`time.monotonic`'s clock. ``lock`` is held while a turn is placed and recorded, never while the engine samples.
    """

    id: str
    rollout_id: str
    budgets: Budgets
    sampling: SamplingPolicy | None = None
    upstream: Upstream | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    forest: Forest = field(default_factory=Forest)
    calls: CallLog = field(default_factory=CallLog)
    origins: Origins = field(default_factory=Origins)
    counters: Counter[str] = field(default_factory=Counter)
    flights: dict[str, Flight] = field(default_factory=dict)
    undelivered: dict[str, Reply] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    turns: int = 0
    tokens: int = 0
    exhausted: str = ""
    used_at: float = field(default_factory=time.monotonic)
    closed: bool = False

    def url(self, base: str) -> str:
        """The session's root below the gateway's address ``base``; it carries the token."""
        return f"{base.rstrip('/')}/s/{self.token}"

    def check_open(self) -> None:
        """Raises: SessionClosed once :meth:`close` was called."""
        if self.closed:
            raise SessionClosed("this session is closed: its rollout has ended and nothing more is recorded")

    async def delivered(self, turn_id: str) -> None:
        """The client has the whole reply of this turn: the same request once more is a new turn."""
        async with self.lock:
            if self.undelivered.pop(turn_id, None) is not None:
                self.forest.delivered(turn_id)

    async def close(self) -> Trajectory:
        """Refuse all later requests, abort what is being sampled, and return what was recorded; idempotent."""
        self.closed = True
        flying = [flight.task for flight in self.flights.values()]
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
        calls = await asyncio.to_thread(self.calls.materialise)
        return Trajectory(self.forest.turns(), calls, dict(self.counters))
