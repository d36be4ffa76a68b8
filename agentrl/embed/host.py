"""The rollouts of a process, for frameworks that call a function for each sample and say neither when they begin nor when they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any

from agentrl.embed.rollouts import Rollouts
from agentrl.errors import AgentrlError
from agentrl.rollout.one import RolloutId

Opening = Callable[[], AbstractAsyncContextManager[Rollouts]]


class Host:
    """Opens rollouts once an event loop, in a task of their own: they are closed when the loop ends its tasks.

    What went wrong at the start is told to every caller; nothing is started twice.
    """

    def __init__(self) -> None:
        self._seen: Counter[tuple[int, int]] = Counter()
        self._opened: asyncio.Future[Rollouts] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def rollouts(self, opening: Opening) -> Rollouts:
        """The rollouts of the running loop; only the first caller's ``opening`` counts. Raises: whatever it raises, AgentrlError."""
        loop = asyncio.get_running_loop()
        if self._opened is None or self._keeper is None or self._opened.get_loop() is not loop:
            self._opened = loop.create_future()
            self._keeper = loop.create_task(_keep(opening, self._opened))
        opened, keeper = self._opened, self._keeper
        either: list[asyncio.Future[Any]] = [opened, keeper]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if keeper.cancelled():
            raise AgentrlError("the rollouts of this process were closed")
        if keeper.done():
            keeper.result()
        return opened.result()

    def rollout_id(self, group: int | None, member: int | None) -> RolloutId:
        """A new one each time, also for a sample that the framework hands over again."""
        place = (group or 0, member or 0)
        self._seen[place] += 1
        return RolloutId(self._seen[place] - 1, *place)

    async def abort_all(self) -> None:
        """End all rollouts that run; later ones are made as ever."""
        if self._opened is not None and self._opened.done():
            await self._opened.result().abort_all()

    async def aclose(self) -> None:
        """End all rollouts and stop everything."""
        keeper, self._opened, self._keeper = self._keeper, None, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])


@cache
def host() -> Host:
    """The one of this process."""
    return Host()


async def _keep(opening: Opening, opened: asyncio.Future[Rollouts]) -> None:
    """Runs until it is cancelled."""
    async with opening() as rollouts:
        opened.set_result(rollouts)
        await asyncio.Event().wait()
