"""agentrl inside slime: slime keeps its loop, this brings sandboxes, agents, exact tokens and grades.

Four functions for slime's flags; only the first is needed::

    --custom-generate-function-path agentrl_slime.generate
    --custom-reward-post-process-path agentrl_slime.post_process_rewards
    --dynamic-sampling-filter-path agentrl_slime.keep_mixed_group
    --rollout-sample-filter-path agentrl_slime.fill_missing_rewards

slime is never imported: samples are copied from the ones that it hands over.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any


async def generate(
    args: Namespace, sample: Any, sampling_params: dict[str, Any], evaluation: bool = False
) -> list[Any]:
    """One rollout as slime samples, see :func:`agentrl_slime.hook.generate`."""
    from agentrl_slime import hook

    return await hook.generate(args, sample, sampling_params, evaluation=evaluation)


def post_process_rewards(args: Namespace, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Raw rewards and advantages, see :func:`agentrl_slime.rewards.post_process_rewards`."""
    from agentrl_slime import rewards

    return rewards.post_process_rewards(args, samples)


def keep_mixed_group(args: Namespace, group: Sequence[Any]) -> bool:
    """Whether a group teaches anything, see :func:`agentrl_slime.rewards.keep_mixed_group`."""
    from agentrl_slime import rewards

    return rewards.keep_mixed_group(args, group)


def fill_missing_rewards(args: Namespace, groups: Sequence[Any]) -> None:
    """A number where there is no verdict, see :func:`agentrl_slime.rewards.fill_missing_rewards`."""
    from agentrl_slime import rewards

    rewards.fill_missing_rewards(args, groups)
