"""slime's arguments and environment variables as settings: who decides what, and what is called how.

slime's arguments decide about the model and how it samples; everything else comes from the environment, where the names that
slime's coding-agent example uses are understood too.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ARGUMENTS: Mapping[str, str] = {
    "AGENTRL_MODEL": "hf_checkpoint",
    "SWE_CONTEXT_TOKENS": "rollout_max_context_len",
    "SWE_MAX_NEW_TOKENS": "rollout_max_response_len",
    "AGENTRL_TEMPERATURE": "rollout_temperature",
    "AGENTRL_TOP_P": "rollout_top_p",
    "AGENTRL_TOP_K": "rollout_top_k",
}
"""Variable → the argument that decides about it, where it is given."""

ALIASES: Mapping[str, str] = {
    "SLIME_AGENT_SANDBOX_LIFETIME_SEC": "SWE_SANDBOX_LIFETIME_SEC",
    "SLIME_AGENT_SANDBOX_IMAGE_METADATA_KEY": "SWE_SANDBOX_IMAGE_METADATA_KEY",
}
"""The example's name → ours."""

FOREIGN = re.compile(
    r"SLIME_AGENT_\w+|SLIME_FORK_MERGE_MAX_RESPONSE_TOKENS|SWE_CC_PROMPT|SWE_RPC_RETRIES"
    r"|SWE_\w+_SANDBOX_SIZE"
)
"""Names of the example that mean nothing here, unless a chosen part knows them."""

BOOT_AND_PREPARE_SEC = 180.0
AFTERLIFE_SEC = 900.0
"""A sandbox outlives the longest rollout by this much."""


@dataclass(frozen=True, slots=True)
class Launch:
    """``overrides``: what slime's arguments decide. ``environ``: everything else, in our names."""

    overrides: Mapping[str, str]
    environ: Mapping[str, str]


def read_launch(args: Namespace, environ: Mapping[str, str]) -> Launch:
    """What a launch of slime says about rollouts. Raises nothing: values are checked where they are read."""
    values = {name: value for name, value in environ.items() if value}
    for theirs, ours in ALIASES.items():
        if theirs in values:
            values.setdefault(ours, values.pop(theirs))
    given = {variable: getattr(args, argument, None) for variable, argument in ARGUMENTS.items()}
    overrides = {variable: str(value) for variable, value in given.items() if value is not None}
    overrides["AGENTRL_ENGINE"] = f"http://{args.sglang_router_ip}:{args.sglang_router_port}"
    return Launch(overrides, {"SWE_CONCURRENCY": str(_in_flight(args)), **_nested(values)})


def flags() -> dict[str, str]:
    """Variable → slime's flag for it, for messages."""
    named = {variable: f"--{argument.replace('_', '-')}" for variable, argument in ARGUMENTS.items()}
    return {**named, "AGENTRL_ENGINE": "--sglang-router-ip, --sglang-router-port"}


def refusals(args: Namespace) -> Iterator[str]:
    """slime's features that cannot go together with rollouts in sandboxes, one sentence each."""
    if getattr(args, "partial_rollout", False):
        yield "--partial-rollout: a rollout that was broken off cannot be continued, its sandbox is gone"
    if getattr(args, "group_rm", False):
        yield "--group-rm: rewards come from the grader of SWE_TRAIN_PROTOCOL"
    if getattr(args, "apply_chat_template", False):
        yield "--apply-chat-template: prompts must stay as they are in the data, the gateway renders conversations"
    if getattr(args, "use_rollout_routing_replay", False):
        yield "--use-rollout-routing-replay: the experts that tokens were routed to are not recorded"
    if getattr(args, "rollout_top_p", 1.0) not in (None, 1.0):
        yield "--rollout-top-p: slime replays the nucleus of each token, which is not recorded: leave it at 1"
    if _own_filter(args) and not getattr(args, "custom_reward_post_process_path", None):
        yield (
            "--rollout-sample-filter-path without --custom-reward-post-process-path: slime cannot take a rollout without reward; "
            "set the latter to agentrl_slime.post_process_rewards"
        )


def _own_filter(args: Namespace) -> bool:
    path = getattr(args, "rollout_sample_filter_path", None)
    return bool(path) and path != "agentrl_slime.fill_missing_rewards"


def _nested(values: Mapping[str, str]) -> dict[str, str]:
    """Timeouts that the example derives where they are not set (0 is not set)."""
    given = {name: value for name, value in values.items() if not (name == "SWE_ROLLOUT_GUARD_SEC" and value == "0")}
    try:
        agent, tests = float(given["SWE_AGENT_TIME_BUDGET_SEC"]), float(given.get("SWE_EVAL_TIMEOUT_SEC", 900))
        guard = float(given.get("SWE_ROLLOUT_GUARD_SEC", agent + tests + BOOT_AND_PREPARE_SEC))
    except (KeyError, ValueError):
        return given
    derived = {"SWE_ROLLOUT_GUARD_SEC": f"{guard:g}", "SWE_SANDBOX_LIFETIME_SEC": f"{guard + AFTERLIFE_SEC:g}"}
    return {**derived, **given}


def _in_flight(args: Namespace) -> int:
    """How many rollouts slime itself has running: it need not be bounded a second time."""
    prompts = max(getattr(args, "over_sampling_batch_size", 0) or 0, getattr(args, "rollout_batch_size", 0) or 0)
    return max(1, 2 * prompts * (getattr(args, "n_samples_per_prompt", 1) or 1))
