"""What can be known to go wrong before anything is paid for: one function a question, each yields sentences.

Not here: who asks, and what becomes of the answers (:mod:`agentrl.rollout.plan`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentrl.harness import Harness
from agentrl.relay import way_to_gateway
from agentrl.sandbox import SandboxBackend
from agentrl.settings import Settings
from agentrl.types import Capabilities

LOOPBACK = ("127.0.0.1", "::1", "localhost")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


def timeouts(settings: Settings) -> Iterator[str]:
    """Timeouts nest: what waits must be more patient than what it waits for."""
    nested = (
        ("SWE_TURN_TIMEOUT_SEC", settings.turn_timeout_sec),
        ("SWE_AGENT_TIME_BUDGET_SEC", settings.agent_time_budget_sec),
        ("SWE_ROLLOUT_GUARD_SEC", settings.rollout_guard_sec),
        ("SWE_SANDBOX_LIFETIME_SEC", settings.sandbox_lifetime_sec),
    )
    for (inner, shorter), (outer, longer) in pairwise(nested):
        if shorter >= longer:
            yield f"{inner} ({shorter:g}) must be less than {outer} ({longer:g})"


def grading_time(settings: Settings) -> Iterator[str]:
    """Whether an agent that uses its whole time leaves enough for the tests."""
    if settings.agent_time_budget_sec + settings.eval_timeout_sec >= settings.rollout_guard_sec:
        yield (
            "SWE_ROLLOUT_GUARD_SEC leaves no time for SWE_AGENT_TIME_BUDGET_SEC and SWE_EVAL_TIMEOUT_SEC one after the other: "
            "slow rollouts will be aborted while they are graded"
        )


def caps(settings: Settings) -> Iterator[str]:
    """Caps on tokens that contradict each other."""
    context, turn = settings.context_tokens, settings.max_new_tokens
    if turn >= context:
        yield f"SWE_MAX_NEW_TOKENS ({turn}) must be less than SWE_CONTEXT_TOKENS ({context}): a prompt needs room too"
    if 0 < settings.max_rollout_tokens < turn:
        yield f"SWE_MAX_ROLLOUT_TOKENS ({settings.max_rollout_tokens}) is less than SWE_MAX_NEW_TOKENS ({turn}), the cap of one turn"
    if settings.max_sample_tokens > context:
        yield f"SWE_MAX_SAMPLE_TOKENS ({settings.max_sample_tokens}) is more than SWE_CONTEXT_TOKENS ({context}) can fill"


def data_file(variable: str, path: Path | None) -> Iterator[str]:
    """The data must be named and be there."""
    if path is None:
        yield f"{variable} is not set: name a JSONL file with one task a line"
    elif not path.exists():
        yield f"{variable}={path}: no such file"


def remote(settings: Settings, *, trains: bool) -> Iterator[str]:
    """A model behind somebody else's API must be named, and gives no tokens to train on."""
    if trains:
        yield f"AGENTRL_ENGINE={settings.engine} gives no tokens with log-probabilities: it can be evaluated, not trained"
    if not settings.remote_model:
        yield "AGENTRL_REMOTE_MODEL is not set: name the model to ask for"


def model_folder(settings: Settings, *, weights: bool) -> Iterator[str]:
    """The model must be a folder with a tokenizer and a config; ``weights`` when it is loaded here and not just talked to."""
    folder = settings.model
    if folder is None:
        yield "AGENTRL_MODEL is not set: name a Hugging Face model folder"
        return
    if not folder.is_dir():
        yield f"AGENTRL_MODEL={folder}: no such folder"
        return
    if not any((folder / name).is_file() for name in TOKENIZERS):
        yield f"AGENTRL_MODEL={folder} has no tokenizer ({', '.join(TOKENIZERS)})"
    if weights and not any(folder.glob("*.safetensors")):
        yield f"AGENTRL_MODEL={folder} has no *.safetensors"
    yield from _positions(settings, folder / "config.json")


def _positions(settings: Settings, config: Path) -> Iterator[str]:
    try:
        values: dict[str, Any] = json.loads(config.read_bytes())
        positions = values.get("max_position_embeddings") or values.get("text_config", {}).get(
            "max_position_embeddings"
        )
    except (OSError, ValueError, AttributeError) as error:
        yield f"AGENTRL_MODEL: {config} cannot be read: {error}"
        return
    if isinstance(positions, int) and settings.context_tokens > positions:
        yield f"SWE_CONTEXT_TOKENS ({settings.context_tokens}) is more than the model's {positions} positions"


def reach(settings: Settings, backend: SandboxBackend, harness: Harness) -> Iterator[str]:
    """An agent inside a sandbox must be able to call the gateway."""
    can = backend.capabilities
    way = way_to_gateway(settings, can)
    if harness.runs_in == "host" or way == "relay" or (way == "direct" and "loopback" in can.reach):
        return
    who, machines = f"{settings.agent} runs inside the sandbox", f"{settings.sandbox} sandboxes"
    if way == "public" and "public" not in can.reach:
        yield f"AGENTRL_REACH=public: {machines} reach no other machine: leave AGENTRL_REACH at auto, or set it to relay"
        return
    if way == "public" and not settings.public_host:
        yield f"{who}: set ADAPTER_PUBLIC_HOST to the name under which {machines} reach this machine, or AGENTRL_REACH=relay"
    if settings.bind_host in LOOPBACK:
        yield f"{who}: set ADAPTER_BIND_HOST to an address of this machine that {machines} can reach, or AGENTRL_REACH=relay"


def abilities(settings: Settings, backend: SandboxBackend, harness: Harness) -> Iterator[str]:
    """What the chosen machines and the chosen agent can and cannot do together."""
    can = backend.capabilities
    where = "on this host, against the sandbox"
    yield f"the agent runs {where if harness.runs_in == 'host' else f'inside the sandbox and {_route(settings, can)}'}"
    yield (
        "agent and grader run as users of their own"
        if can.users
        else "one user only: the agent has the sandbox's own rights"
    )
    yield f"limits that hold: {', '.join(sorted(can.resources)) or 'none'}"
    yield "the network can be closed" if can.network_policy else "the network cannot be closed"
    if layers := harness.layers():
        yield f"{settings.agent} is installed once for each image ({', '.join(layer.name for layer in layers)})"


def _route(settings: Settings, can: Capabilities) -> str:
    """How an agent inside a sandbox gets to the gateway, in words."""
    match way_to_gateway(settings, can):
        case "direct":
            return f"reaches the gateway directly ({', '.join(sorted(can.reach & {'loopback', 'bridge'}))})"
        case "public":
            return f"reaches the gateway at {settings.public_host or 'ADAPTER_PUBLIC_HOST'}"
        case "relay":
            how = "a WebSocket, or commands" if "tunnel" in can.reach else "commands"
            return f"reaches the gateway by a relay ({how} that this host sends; images need python3)"


def remarks(settings: Settings) -> Iterator[str]:
    """What is allowed and probably not meant."""
    yield from grading_time(settings)
    if settings.group_size == 1:
        yield "AGENTRL_GROUP_SIZE=1: a group of one has no baseline, so nothing will be learnt"
    if 0 < settings.max_sandboxes < settings.concurrency:
        yield (
            f"SWE_MAX_SANDBOXES ({settings.max_sandboxes}) is less than SWE_CONCURRENCY ({settings.concurrency}): "
            "the time that rollouts wait for a sandbox counts as theirs"
        )
    if settings.bind_host not in LOOPBACK:
        yield f"the gateway listens on {settings.bind_host}: other machines can call it, with a session's token"
