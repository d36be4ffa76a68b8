"""The rollouts of this process, as slime's arguments and environment want them: started at the first sample."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from agentrl.api import PlanError, environment
from agentrl.embed import Rollouts, host, open_rollouts
from agentrl_slime.settings import FOREIGN, flags, read_launch, refusals

log = logging.getLogger(__name__)


async def started(args: Namespace) -> Rollouts:
    """The same ones for every sample. Raises: PlanError before anything is paid for, and whatever starting raises."""
    return await host().rollouts(partial(_open, args))


@asynccontextmanager
async def _open(args: Namespace) -> AsyncIterator[Rollouts]:
    if problems := tuple(refusals(args)):
        raise PlanError(problems)
    _let_rewards_be_missing(args)
    launch = read_launch(args, environment())
    async with open_rollouts(
        launch.overrides, name="slime", environ=launch.environ, called=flags(), foreign=FOREIGN
    ) as rollouts:
        yield rollouts


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
