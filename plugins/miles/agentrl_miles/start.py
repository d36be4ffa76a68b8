"""The rollouts of this process, as miles' arguments and environment want them: started at the first sample."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from agentrl.api import AgentrlError, PlanError
from agentrl.embed import Rollouts, host, open_rollouts
from agentrl_miles.settings import flags


class CannotStart(BaseException):
    """Nothing can be rolled out here. Not an :class:`Exception`: miles takes those for a failed sample and draws the next one, for ever."""


async def started(overrides: Mapping[str, str], refusals: Iterable[str] = ()) -> Rollouts:
    """The same ones for every sample; only the first caller's arguments count. Raises: CannotStart, before anything is paid for."""
    try:
        return await host().rollouts(partial(_open, overrides, tuple(refusals)))
    except (AgentrlError, OSError) as error:
        raise CannotStart(f"{type(error).__name__}: {error}") from error


@asynccontextmanager
async def _open(overrides: Mapping[str, str], refusals: tuple[str, ...]) -> AsyncIterator[Rollouts]:
    if refusals:
        raise PlanError(refusals)
    async with open_rollouts(overrides, name="miles", called=flags()) as rollouts:
        yield rollouts
