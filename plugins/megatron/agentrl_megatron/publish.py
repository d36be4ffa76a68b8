"""Publishing: the ranks' weights reach the engine by broadcast, under a new version, while generation is held."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

from agentrl.api import Engine, EngineError, TrainerError, WeightGroup
from agentrl_megatron.ranks import Ranks
from agentrl_megatron.settings import MegatronSettings


async def join_engine(ranks: Ranks, engine: Engine, settings: MegatronSettings) -> WeightGroup:
    """Connect rank 0 and the engine's ranks. Raises: TrainerError."""
    name = f"agentrl-{uuid4().hex[:12]}"
    world_size = 1 + settings.engine_ranks
    opened = await ranks.first("open", host=settings.host, world_size=world_size, name=name, backend=ranks.backend)
    group = WeightGroup(name, settings.host, opened["port"], world_size, ranks.backend)
    await _together("the engine did not join the weight group", ranks.first("join"), engine.join_weight_group(group))
    return group


async def publish(ranks: Ranks, engine: Engine, group: WeightGroup, version: str) -> None:
    """Make the engine serve the ranks' weights as ``version``.

    Raises: TrainerError when any part of it failed. The engine then stays paused: its weights may be half new, and
    nothing must be sampled from them.
    """
    failure = f"weights of version {version} did not reach the engine"
    try:
        await engine.pause()
        await _together(failure, ranks.all("broadcast"), engine.update_weights(ranks.weights, group, version))
        await engine.resume()
        served = await engine.weight_version()
    except EngineError as error:
        raise TrainerError(f"{failure}: {error}") from error
    if served != version:
        raise TrainerError(f"{failure}: it still serves version {served!r}")


async def _together(failure: str, ours: Coroutine[Any, Any, Any], theirs: Coroutine[Any, Any, None]) -> None:
    """Both sides of a collective. When one fails, the other would wait for ever and is given up."""
    tasks = [asyncio.ensure_future(ours), asyncio.ensure_future(theirs)]
    try:
        await asyncio.gather(*tasks)
    except EngineError as error:
        raise TrainerError(f"{failure}: {error}") from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
