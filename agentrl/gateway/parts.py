"""What the turns of all sessions share, and the rule about heavy work: never on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from agentrl.engine import Engine
from agentrl.gateway.guards import SamplingPolicy
from agentrl.middleware import Middleware
from agentrl.tokens.codec import Codec
from agentrl.types import Turn

READ = 64
"""Reading and placing a character costs this much less than rendering it, which is what ``offload_chars`` counts."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TurnParts:
    """What turns of all sessions share. Work on more than ``offload_chars`` characters or ids runs in ``pool``."""

    codec: Codec
    engine: Engine
    sampling: SamplingPolicy
    middleware: Sequence[Middleware]
    context_tokens: int
    turn_timeout_sec: float
    pool: Executor
    on_turn: Callable[[str, Turn], None] | None = None
    offload_chars: int = 8192
    turnstile: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def offload(self, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``work`` here when it is small and in the pool otherwise; a cancelled caller still waits for its end."""
        if size <= self.offload_chars:
            # A thousand requests may arrive in one pass of the loop: let one through each pass, so that none takes long.
            async with self.turnstile:
                await asyncio.sleep(0)
                return work(*args, **kwargs)
        running = asyncio.get_running_loop().run_in_executor(self.pool, partial(work, *args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise
