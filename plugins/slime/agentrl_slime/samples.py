"""A finished rollout as samples of slime's own class, made from the sample that slime handed over."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.api import Outcome, Rollout, Sample

PLACEHOLDER = (0, 0)
"""Tokens of a sample that trains nothing: one of prompt and one of response, the least that slime's packing takes."""

Spell = Callable[[Sequence[int]], str]


def trained(base: Any, rollout: Rollout, spell: Spell) -> list[Any]:
    """One slime sample for each of the rollout's; they share ``rollout_id``, so that slime's loss counts the rollout once.

    A rollout without verdict, or with nothing to train on, becomes :func:`aborted`.
    """
    if rollout.reward is None:
        return aborted(base, str(rollout.exit_status), _facts(rollout))
    samples = [_trained(base, rollout, sample, spell) for sample in rollout.samples if any(sample.loss_mask)]
    return samples or aborted(base, "nothing_to_train", _facts(rollout))


def evaluated(base: Any, rollout: Rollout) -> list[Any]:
    """One sample that carries the reward only."""
    if rollout.reward is None:
        return aborted(base, str(rollout.exit_status), _facts(rollout), evaluation=True)
    sample = _untrained(base, _facts(rollout))
    sample.reward = rollout.reward
    sample.status = _status(base, truncated=rollout.outcome is Outcome.TRUNCATED)
    return [sample]


def aborted(base: Any, reason: str, facts: dict[str, Any] | None = None, *, evaluation: bool = False) -> list[Any]:
    """A sample that trains nothing and has no reward; ``metadata["abort_reason"]`` says why.

    In an evaluation the reward is NaN: slime averages those rewards as they are, and an average that lacks a verdict is no number.
    """
    sample = _untrained(base, {**(facts or {}), "abort_reason": reason})
    sample.reward = math.nan if evaluation else None
    sample.status = type(base).Status.ABORTED
    return [sample]


def _trained(base: Any, rollout: Rollout, source: Sample, spell: Spell) -> Any:
    start = source.loss_mask.index(1)
    sample = _copy(base, {**_facts(rollout), "sample": source.index, "loss_weight": source.loss_weight})
    sample.tokens = list(source.tokens)
    sample.response_length = len(source.tokens) - start
    sample.response = spell(source.tokens[start:])
    sample.loss_mask = list(source.loss_mask[start:])
    sample.rollout_log_probs = list(source.logprobs[start:])
    sample.weight_versions = list(source.weight_versions)
    sample.reward = source.reward
    sample.status = _status(base, truncated=source.truncated or rollout.outcome is Outcome.TRUNCATED)
    return sample


def _untrained(base: Any, facts: dict[str, Any]) -> Any:
    sample = _copy(base, facts)
    sample.tokens, sample.response, sample.response_length = list(PLACEHOLDER), "", 1
    sample.loss_mask, sample.rollout_log_probs, sample.weight_versions = [0], [0.0], []
    sample.remove_sample = True
    return sample


def _copy(base: Any, facts: dict[str, Any]) -> Any:
    sample = copy.copy(base)
    sample.rollout_id = base.index if base.rollout_id is None else base.rollout_id
    sample.metadata = {**(base.metadata or {}), **facts}
    return sample


def _status(base: Any, *, truncated: bool) -> Any:
    return type(base).Status.TRUNCATED if truncated else type(base).Status.COMPLETED


def _facts(rollout: Rollout) -> dict[str, Any]:
    return {
        "instance_id": rollout.task_id,
        "agentrl_rollout": rollout.id,
        "exit_status": str(rollout.exit_status),
        "message": rollout.message,
        "turns": len(rollout.trajectory.turns),
        "seconds": dict(rollout.seconds),
    }
