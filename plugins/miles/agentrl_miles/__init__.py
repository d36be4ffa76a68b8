"""agentrl inside miles: miles keeps its loop, this brings sandboxes, agents and grades, and exact tokens if it may.

Who keeps the tokens is decided by the first flag. agentrl's gateway::

    --custom-generate-function-path agentrl_miles.generate

or miles' session server::

    --custom-generate-function-path miles.rollout.generate_hub.agentic_tool_call.generate
    --custom-agent-function-path agentrl_miles.agent
    --use-session-server

With either of them::

    --custom-rm-path agentrl_miles.reward_func
    --dynamic-sampling-filter-path miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted

A rollout without verdict is ``ABORTED`` and has no reward; that filter leaves its group out, and miles draws another.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any


async def generate(input: Any) -> Any:
    """One rollout as miles samples, see :func:`agentrl_miles.hook.generate`. miles wants the parameter's name as it is."""
    from agentrl_miles import hook

    return await hook.generate(input)


def _add_arguments(parser: ArgumentParser) -> None:
    """miles looks for :func:`abort` beside the agent function, which is not used otherwise here."""
    parser.add_argument("--custom-agent-function-path", type=str, default="agentrl_miles.agent")


generate.add_arguments = _add_arguments  # type: ignore[attr-defined]


async def agent(
    base_url: str, prompt: Any, request_kwargs: dict[str, Any], metadata: dict[str, Any], **_more: Any
) -> dict[str, Any]:
    """One rollout whose tokens miles keeps, see :func:`agentrl_miles.hook.agent`."""
    from agentrl_miles import hook

    return await hook.agent(base_url, prompt, request_kwargs, metadata)


async def reward_func(args: Namespace, samples: Any | Sequence[Any], **_more: Any) -> Any:
    """The verdicts of one sample or several, see :func:`agentrl_miles.samples.verdict`."""
    from agentrl_miles.samples import verdict

    return [verdict(sample) for sample in samples] if isinstance(samples, list) else verdict(samples)


async def abort(args: Namespace) -> None:
    """miles has enough samples: end all rollouts that still run, and their machines."""
    from agentrl.embed import host

    await host().abort_all()
