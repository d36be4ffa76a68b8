"""miles' arguments as settings: who decides what, and what is called how.

miles' arguments decide about the model and how it samples, everything else comes from the environment.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "AGENTRL_MODEL": ("hf_checkpoint",),
    "SWE_CONTEXT_TOKENS": ("rollout_max_context_len", "max_seq_len", "sglang_context_length"),
    "SWE_MAX_NEW_TOKENS": ("rollout_max_response_len",),
    "AGENTRL_TEMPERATURE": ("rollout_temperature",),
    "AGENTRL_TOP_P": ("rollout_top_p",),
    "AGENTRL_TOP_K": ("rollout_top_k",),
}
"""Variable → the arguments that decide about it; the first one that is given does."""

REFUSED: Mapping[str, str] = {
    "partial_rollout": "a rollout that was broken off cannot be continued, its sandbox is gone",
    "group_rm": "rewards come from the grader of SWE_TRAIN_PROTOCOL, one rollout at a time",
    "apply_chat_template": "prompts must stay as they are in the data, the gateway renders conversations",
    "use_rollout_routing_replay": "the experts of a token are not recorded here; agentrl_miles.agent leaves that to miles",
    "use_rollout_indexer_replay": "the indexer's choices are not recorded here; agentrl_miles.agent leaves that to miles",
    "lora_rank": "requests for an adapter are not made here; agentrl_miles.agent leaves that to miles",
}
"""Arguments that cannot go together with agentrl's gateway."""


def overrides(args: Namespace) -> dict[str, str]:
    """What miles' arguments decide where agentrl's gateway keeps the tokens."""
    given = {variable: _first(args, names) for variable, names in ARGUMENTS.items()}
    engine = {"AGENTRL_ENGINE": f"http://{args.sglang_router_ip}:{args.sglang_router_port}"}
    return engine | {variable: str(value) for variable, value in given.items() if value is not None}


def session_overrides(
    session_url: str, request_kwargs: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, str]:
    """The same where miles' session server keeps them: an agent function gets no arguments, only what follows from them."""
    engine = {"AGENTRL_ENGINE": f"openai:{session_url}", "AGENTRL_REMOTE_MODEL": "policy"}
    caps = {
        "SWE_CONTEXT_TOKENS": metadata.get("max_seq_len"),
        "SWE_MAX_NEW_TOKENS": request_kwargs.get("max_tokens"),
    }
    return engine | {variable: str(value) for variable, value in caps.items() if value is not None}


def flags() -> dict[str, str]:
    """Variable → miles' flag for it, for messages."""
    named = {variable: f"--{names[0].replace('_', '-')}" for variable, names in ARGUMENTS.items()}
    return {**named, "AGENTRL_ENGINE": "--sglang-router-ip, --sglang-router-port"}


def refusals(args: Namespace) -> Iterator[str]:
    """What was asked for and cannot be had, one sentence each."""
    for name, reason in REFUSED.items():
        if getattr(args, name, None):
            yield f"--{name.replace('_', '-')}: {reason}"


def _first(args: Namespace, names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := getattr(args, name, None)) is not None), None)
