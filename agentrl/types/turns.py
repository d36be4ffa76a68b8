"""What is sampled: generations, the turns of a rollout, and the samples that a trainer gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the engine samples. ``top_k`` -1: off. ``seed`` None: the engine's own stream of random numbers."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What the engine sampled: ``len(ids) == len(logprobs)``, each the log-probability under the sampled distribution.

    ``finish``: ``stop`` (a stop id, included in ``ids`` when the engine returned it), ``length`` or ``abort``.
    ``dispatch_version`` and ``weight_version`` are the policy's versions when the request left and when it ended.
    """

    request_id: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length", "abort"]
    weight_version: str = ""
    dispatch_version: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One recorded model call, a node of the trajectory.

    The full prompt is: the prompt and ``generation.ids`` of the parent, then ``new_ids``. A turn without parent has
    its whole prompt in ``new_ids``. ``fork_reason`` says why this turn did not continue the chain before it (empty
    for the first turn and for plain continuations). ``trainable`` is False for turns kept out of training
    (``excluded`` says why: ``abort``, ``foreign_client``, ...).
    """

    id: str
    parent_id: str | None
    new_ids: Sequence[int]
    generation: Generation
    prompt_tokens: int
    fork_reason: str = ""
    trainable: bool = True
    excluded: str = ""
    lane: str = ""
    started_at: float = 0.0
    duration_sec: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineCall:
    """The raw ``/generate`` exchange as it went over the wire: the evidence that ``agentrl verify`` replays."""

    request_id: str
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    weight_version: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The tree of a rollout's turns, parents before children, with the raw engine calls and counters.

    ``counters``: control tokens neutralised, malformed tool calls, retries recognised, ... (absent = not measured).
    """

    turns: tuple[Turn, ...]
    calls: tuple[EngineCall, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the trainer gets: one token-contiguous chain part.

    ``tokens``, ``loss_mask`` and ``logprobs`` have one length T. ``loss_mask[i]`` is 1 only where the engine sampled
    ``tokens[i]`` and no other sample of the rollout trains it; ``logprobs[i]`` is what the engine returned for it and 0.0
    elsewhere. ``loss_weight``: the weights of one rollout's samples sum to 1. ``turn_ids``: the turns it trains.
    """

    rollout_id: str
    index: int
    tokens: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_weight: float
    reward: float
    turn_ids: tuple[str, ...] = ()
    weight_versions: tuple[str, ...] = ()
    truncated: bool = False
