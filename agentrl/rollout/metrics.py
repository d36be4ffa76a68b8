"""The numbers of an iteration: one JSON object, the same for the console, ``metrics.jsonl`` and TensorBoard.

``reward`` is the solve rate (mean reward of the rollouts that have one), never the centred advantage. What was not
measured is absent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from agentrl.outcomes import RULES
from agentrl.types import Group, Rollout

FILE = "metrics.jsonl"


def iteration_metrics(
    iteration: int, groups: Sequence[Group], update: Mapping[str, float], seconds: Mapping[str, float]
) -> dict[str, Any]:
    """What happened in one iteration. ``update``: the trainer's own numbers; ``seconds``: phase → duration."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    graded = [rollout for rollout in rollouts if rollout.reward is not None]
    metrics: dict[str, Any] = dict(update)
    metrics |= {
        "iteration": iteration,
        "rollouts_graded": len(graded),
        "rollouts_aborted": dict(Counter(r.exit_status.value for r in rollouts if r.reward is None)),
        "grades": dict(Counter(r.grade.exit_status.value for r in graded if r.grade)),
        "causes": dict(Counter(RULES[r.exit_status].cause for r in rollouts)),
        "exit_status": dict(Counter(r.exit_status.value for r in rollouts)),
        "samples": sum(len(r.samples) for r in graded),
        "turns": sum(len(r.trajectory.turns) for r in graded),
        "tokens_sampled": sum(len(t.generation.ids) for r in graded for t in r.trajectory.turns),
        "tokens_trained": sum(sum(s.loss_mask) for r in graded for s in r.samples),
        "forks": dict(Counter(t.fork_reason for r in graded for t in r.trajectory.turns if t.fork_reason)),
        "seconds": dict(seconds),
    }
    if metrics["tokens_sampled"]:
        metrics["trained_share"] = metrics["tokens_trained"] / metrics["tokens_sampled"]
    if graded:
        metrics["reward"] = _mean_reward(graded)
        metrics["reward_by_level"] = _by_level(graded)
        metrics["samples_per_rollout"] = metrics["samples"] / len(graded)
        metrics["seconds_per_rollout"] = fmean(r.seconds["total"] for r in graded)
    return metrics


def _mean_reward(rollouts: Iterable[Rollout]) -> float:
    return fmean(r.reward for r in rollouts if r.reward is not None)


def _by_level(rollouts: Iterable[Rollout]) -> dict[str, float]:
    levels: defaultdict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        levels[rollout.level or "all"].append(rollout)
    return {level: _mean_reward(levels[level]) for level in sorted(levels)}


def scalars(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested metrics as ``a/b`` → number, for TensorBoard."""
    flat: dict[str, float] = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            flat |= scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[prefix + key] = float(value)
    return flat
