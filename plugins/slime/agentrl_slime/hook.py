"""The function behind ``--custom-generate-function-path``: one of slime's samples in, its rollout's samples out."""

from __future__ import annotations

import asyncio
import logging
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from agentrl.api import Rollout, RowError
from agentrl.embed import Rollouts, host, row_of
from agentrl_slime.samples import aborted, evaluated, trained
from agentrl_slime.start import started

WATCH_SEC = 1.0
"""How soon a rollout notices that slime has had enough of them."""

log = logging.getLogger(__name__)


async def generate(
    args: Namespace, sample: Any, sampling_params: dict[str, Any], evaluation: bool = False
) -> list[Any]:
    """A rollout of the task in ``sample``, boot to grade, as new samples of the same class.

    Training gets one for each token-contiguous part of the rollout, an evaluation one that carries the reward. A rollout
    without verdict is one sample without reward, ``ABORTED`` and ``remove_sample``, with ``abort_reason`` in its metadata.

    Raises: PlanError, before the first rollout, when the combination cannot work.
    """
    rollouts = await started(args)
    try:
        rollout = await _watched(args, rollouts, sample, sampling_params, evaluation=evaluation)
    except RowError as error:
        log.warning("no rollout of sample %s: %s", sample.index, error)
        return aborted(sample, f"row: {error}", evaluation=evaluation)
    if rollout.reward is None:
        log.warning("rollout %s of %s: %s %s", rollout.id, rollout.task_id, rollout.exit_status, rollout.message)
    return evaluated(sample, rollout) if evaluation else trained(sample, rollout, rollouts.spell)


async def _watched(
    args: Namespace, rollouts: Rollouts, sample: Any, sampling_params: Mapping[str, Any], *, evaluation: bool
) -> Rollout:
    """slime tells nobody when it aborts: whoever waits has to look."""
    rollout_id = host().rollout_id(sample.group_index, sample.index)
    sampling = rollouts.sampling(sampling_params)
    running = asyncio.create_task(rollouts.run(_row(sample), rollout_id, evaluation=evaluation, sampling=sampling))
    try:
        while not (await asyncio.wait([running], timeout=WATCH_SEC))[0]:
            if _slime_aborts(args):
                await rollouts.abort_all()
        return running.result()
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])


def _slime_aborts(args: Namespace) -> bool:
    """Whether slime has its samples and waits for the rest to end."""
    loop = sys.modules.get("slime.rollout.sglang_rollout")
    return loop is not None and bool(loop.GenerateState(args).aborted)


def _row(sample: Any) -> dict[str, Any]:
    """The task row that a sample carries. slime's rows of SWE-bench keep the benchmark's columns one level down."""
    metadata = dict(sample.metadata or {})
    nested = metadata.get("remote_env_info")
    columns = {**nested, **metadata} if isinstance(nested, Mapping) else metadata
    return {**columns, **row_of(metadata, prompt=sample.prompt, label=sample.label)}
