"""The rollouts of this process: started at the first sample, shared by all later ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from agentrl.api import AgentrlError, PlanError
from agentrl.embed import RolloutId, Rollouts, open_rollouts
from agentrl_miles.settings import flags


class CannotStart(BaseException):
    """Nothing can be rolled out here. Not an :class:`Exception`: miles takes those for a failed sample and draws the next one, for ever."""


class Host:
    """Opens rollouts once an event loop, in a task of their own: they are closed when the loop ends its tasks."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[int, int]] = Counter()
        self._opened: asyncio.Future[Rollouts] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def rollouts(self, overrides: Mapping[str, str], refusals: Iterable[str] = ()) -> Rollouts:
        """The rollouts of the running loop; only the first caller's arguments count. Raises: CannotStart, before anything is paid for."""
        loop = asyncio.get_running_loop()
        if self._opened is None or self._keeper is None or self._opened.get_loop() is not loop:
            self._opened = loop.create_future()
            self._keeper = loop.create_task(_keep(overrides, tuple(refusals), self._opened))
        opened, keeper = self._opened, self._keeper
        await asyncio.wait([opened, keeper], return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            return opened.result()
        try:
            keeper.result()
        except (AgentrlError, OSError) as error:
            raise CannotStart(f"{type(error).__name__}: {error}") from error
        raise CannotStart("the rollouts of this process were closed")

    def rollout_id(self, group: int | None, member: int | None) -> RolloutId:
        """A new one each time, also for a sample that miles hands over again."""
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


async def _keep(overrides: Mapping[str, str], refusals: tuple[str, ...], opened: asyncio.Future[Rollouts]) -> None:
    """Runs until it is cancelled."""
    if refusals:
        raise PlanError(refusals)
    async with open_rollouts(overrides, name="miles", called=flags()) as rollouts:
        opened.set_result(rollouts)
        await asyncio.Event().wait()
