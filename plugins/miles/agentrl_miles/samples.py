"""A finished rollout as samples of miles' own class, made from the sample that miles handed over; and the verdict in one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.api import Outcome, Rollout, Sample, UsageError

KEY = "agentrl"
"""Where a sample's metadata says what became of its rollout; ``reward`` is there only if there was a verdict."""

Spell = Callable[[Sequence[int]], str]


def trained(base: Any, rollout: Rollout, spell: Spell) -> list[Any]:
    """One miles sample for each of the rollout's; they share ``rollout_id``, so that miles' loss counts the rollout once.

    A rollout without verdict, or with nothing to train on, becomes :func:`aborted`.
    """
    found = facts(rollout)
    if rollout.reward is None:
        return aborted(base, found)
    samples = [_trained(base, rollout, sample, spell) for sample in rollout.samples if any(sample.loss_mask)]
    return samples or aborted(base, {**found, KEY: {**found[KEY], "message": "there is nothing to train on"}})


def aborted(base: Any, found: dict[str, Any]) -> list[Any]:
    """A sample that trains nothing and has no reward, in miles' own shape for that."""
    sample = _copy(base, found)
    sample.status, sample.remove_sample = type(base).Status.ABORTED, True
    return [sample]


def facts(rollout: Rollout) -> dict[str, Any]:
    """What goes into a sample's metadata."""
    seconds = rollout.seconds
    measured = {
        "turns": len(rollout.trajectory.turns) or rollout.trajectory.counters.get("turns_relayed"),
        "total_time": seconds.get("total"),
        "agent_run_time": seconds.get("agent"),
        "eval_time": seconds.get("grade"),
    }
    found = {
        "rollout": rollout.id,
        "task": rollout.task_id,
        "exit_status": str(rollout.exit_status),
        "outcome": str(rollout.outcome),
        "message": rollout.message,
    }
    verdict = {} if rollout.reward is None else {"reward": rollout.reward}
    return {
        KEY: {**found, **verdict},
        "agent_metrics": {name: value for name, value in measured.items() if value is not None},
    }


def verdict(sample: Any) -> float | None:
    """The reward that the grader gave, which may be 0. Without one the sample becomes ``ABORTED`` and has none."""
    found = (sample.metadata or {}).get(KEY) or {}
    if (reward := found.get("reward")) is not None:
        return float(reward)
    sample.status, sample.remove_sample = type(sample).Status.ABORTED, True
    return None


def _trained(base: Any, rollout: Rollout, source: Sample, spell: Spell) -> Any:
    start = source.loss_mask.index(1)
    sample = _copy(base, facts(rollout))
    sample.metadata[KEY] |= {"sample": source.index, "loss_weight": source.loss_weight}
    sample.tokens = list(source.tokens)
    sample.response_length = len(source.tokens) - start
    sample.response = spell(source.tokens[start:])
    sample.loss_mask = list(source.loss_mask[start:])
    sample.rollout_log_probs = list(source.logprobs[start:])
    sample.weight_versions = list(source.weight_versions)
    sample.reward = source.reward
    sample.non_generation_time = sum(
        rollout.seconds.get(phase, 0.0) for phase in ("boot", "prepare", "collect", "grade")
    )
    status = type(base).Status
    cut = source.truncated or rollout.outcome is Outcome.TRUNCATED
    sample.status = status.TRUNCATED if cut else status.COMPLETED
    return sample


def _copy(base: Any, found: dict[str, Any]) -> Any:
    """A fresh sample of the same prompt: nothing of an earlier attempt stays in it."""
    sample = copy.copy(base)
    sample.rollout_id = base.index if base.rollout_id is None else base.rollout_id
    if sample.rollout_id is None:
        raise UsageError(
            "miles handed over a sample with neither rollout_id nor index: its parts could not be told from others"
        )
    sample.metadata = {**(base.metadata or {}), **copy.deepcopy(found)}
    sample.tokens, sample.response, sample.response_length = [], "", 0
    sample.loss_mask, sample.rollout_log_probs, sample.weight_versions = None, None, []
    sample.reward, sample.remove_sample, sample.non_generation_time = None, False, 0.0
    return sample
