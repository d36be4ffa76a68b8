"""The rollouts of this process: started at the first sample, shared by all later ones."""

from __future__ import annotations

import asyncio
import logging
from argparse import Namespace
from functools import cache
from itertools import count
from typing import Any

from agentrl.api import PlanError, environment
from agentrl.embed import Rollouts, open_rollouts
from agentrl_slime.settings import FOREIGN, flags, read_launch, refusals

log = logging.getLogger(__name__)


class Host:
    """Opens rollouts once an event loop, in a task of their own: they are closed when the loop ends its tasks.

    What went wrong at the start is told to every caller; nothing is started twice.
    """

    def __init__(self) -> None:
        self.numbers = count()
        self._opened: asyncio.Future[Rollouts] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def rollouts(self, args: Namespace) -> Rollouts:
        """The rollouts of the running loop. Raises: PlanError before anything is paid for, and whatever starting raises."""
        loop = asyncio.get_running_loop()
        if self._opened is None or self._keeper is None or self._opened.get_loop() is not loop:
            self._opened = loop.create_future()
            self._keeper = loop.create_task(_keep(args, self._opened))
        opened, keeper = self._opened, self._keeper
        either: list[asyncio.Future[Any]] = [opened, keeper]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if keeper.done():
            keeper.result()
        return opened.result()

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


async def _keep(args: Namespace, opened: asyncio.Future[Rollouts]) -> None:
    """Runs until it is cancelled."""
    if problems := tuple(refusals(args)):
        raise PlanError(problems)
    _let_rewards_be_missing(args)
    launch = read_launch(args, environment())
    async with open_rollouts(
        launch.overrides, name="slime", environ=launch.environ, called=flags(), foreign=FOREIGN
    ) as rollouts:
        opened.set_result(rollouts)
        await asyncio.Event().wait()


def _let_rewards_be_missing(args: Namespace) -> None:
    """slime's own post-processing fails on a reward of None; where nothing else was chosen, slime's filter, which it looks
    up after the rollouts, fills them."""
    if getattr(args, "custom_reward_post_process_path", None) or getattr(args, "rollout_sample_filter_path", None):
        return
    args.rollout_sample_filter_path = "agentrl_slime.fill_missing_rewards"
    log.warning(
        "--custom-reward-post-process-path is not set: aborted rollouts get their group's mean, and groups whose rollouts became "
        "several samples are centred together. agentrl_slime.post_process_rewards does better"
    )
