"""The two functions that miles calls for a sample: one that makes finished samples, one that only lets an agent work."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from agentrl.api import AgentrlError, PlanError, RowError
from agentrl.embed import host, row_of
from agentrl_miles.samples import KEY, aborted, facts, trained
from agentrl_miles.settings import overrides, refusals, session_overrides
from agentrl_miles.start import CannotStart, started

log = logging.getLogger(__name__)


async def generate(given: Any) -> Any:
    """A rollout of the task in ``given.sample``, boot to grade: agentrl's gateway samples from miles' router.

    Training always gets a list: one sample for each token-contiguous part, or one that is ``ABORTED``. In an evaluation a
    rollout without verdict is an empty list, which leaves miles' averages alone. Raises: CannotStart.
    """
    from miles.rollout.base_types import GenerateFnOutput

    args, sample, evaluation = given.args, given.sample, given.evaluation
    rollouts = await started(overrides(args), refusals(args))
    rollout_id = host().rollout_id(sample.group_index, sample.index)
    row = row_of(sample.metadata or {}, prompt=sample.prompt, label=sample.label)
    sampling = rollouts.sampling(given.sampling_params)
    try:
        rollout = await rollouts.run(row, rollout_id, evaluation=evaluation, sampling=sampling)
    except PlanError as error:
        raise CannotStart(str(error)) from error
    except RowError as error:
        log.warning("no rollout of sample %s: %s", sample.index, error)
        samples = aborted(sample, {KEY: {"exit_status": "row", "message": str(error)}})
    else:
        samples = trained(sample, rollout, rollouts.spell)
        if rollout.reward is None:
            log.warning("rollout %s of %s: %s %s", rollout.id, rollout.task_id, rollout.exit_status, rollout.message)
    if evaluation:
        samples = [sample for sample in samples if sample.reward is not None][:1]
    return GenerateFnOutput(samples=samples)


async def agent(
    base_url: str, prompt: Any, request_kwargs: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """A rollout of the task in ``metadata``: the agent's turns go on to miles' session at ``base_url``, which keeps the tokens.

    What it returns lands in the sample's metadata, where ``reward_func`` finds the verdict, or none. Raises: CannotStart.
    """
    session_url = f"{base_url.rstrip('/')}/v1"
    rollouts = await started(session_overrides(session_url, request_kwargs, metadata))
    rollout_id = host().rollout_id(metadata.get("group_index"), metadata.get("index"))
    try:
        rollout = await rollouts.run(
            row_of(metadata, prompt=prompt),
            rollout_id,
            sampling=rollouts.sampling({**request_kwargs, "max_new_tokens": request_kwargs.get("max_tokens")}),
            upstream=f"openai:{session_url}",
            pinned=request_kwargs,
        )
    except PlanError as error:
        raise CannotStart(str(error)) from error
    except AgentrlError as error:
        # miles forgets an exception, and with it that there is no verdict.
        log.warning("no rollout for %s: %s", base_url, error)
        return {KEY: {"exit_status": "row", "message": str(error)}}
    if rollout.reward is None:
        log.warning("rollout %s of %s: %s %s", rollout.id, rollout.task_id, rollout.exit_status, rollout.message)
    return facts(rollout)
