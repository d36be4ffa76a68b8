"""What slime's reward hooks need to know: an aborted rollout has no reward, and a rollout counts once however many samples
it became.

slime's own post-processing knows neither. It cannot take a reward of None, and where one rollout became several samples it
centres all groups of the batch together.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

CENTRED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
SCALED = ("grpo", "gspo", "cispo")
EPSILON = 1e-6


def post_process_rewards(args: Namespace, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Raw rewards and what slime trains with, one for each sample.

    Within a group the mean, and the standard deviation where slime divides by it, are those of its graded rollouts. A
    sample without reward gets the group's mean as raw reward, so that no average moves, and 0 to train with.
    """
    groups: dict[object, list[Any]] = {}
    for sample in samples:
        groups.setdefault(sample.group_index, []).append(sample)
    known = {index: _verdicts(group) for index, group in groups.items()}
    raw = [_or_mean(sample.reward, known[sample.group_index]) for sample in samples]
    if args.advantage_estimator not in CENTRED or not args.rewards_normalization:
        return raw, [0.0 if sample.reward is None else float(sample.reward) for sample in samples]
    scaled = args.advantage_estimator in SCALED and args.grpo_std_normalization
    used = [_centred(sample.reward, known[sample.group_index], scaled=scaled) for sample in samples]
    return raw, used


def keep_mixed_group(args: Namespace, group: Sequence[Any]) -> bool:
    """For dynamic sampling: whether the group's graded rollouts differ."""
    return len(set(_verdicts(_flat(group)))) > 1


def fill_missing_rewards(args: Namespace, groups: Sequence[Any]) -> None:
    """For runs that keep slime's own post-processing: give every sample without verdict its group's mean.

    Such samples train nothing (``remove_sample``) and a mean leaves the group's mean as it is, so nobody's baseline moves.
    ``metadata["reward_missing"]`` tells them from real verdicts.
    """
    for group in groups:
        members = list(_flat(group))
        verdicts = _verdicts(members)
        for sample in members:
            if sample.reward is None:
                sample.reward = _or_mean(None, verdicts)
                sample.metadata = {**(sample.metadata or {}), "reward_missing": True}


def _flat(group: Iterable[Any]) -> Iterator[Any]:
    for member in group:
        yield from _flat(member) if isinstance(member, list) else (member,)


def _verdicts(samples: Iterable[Any]) -> list[float]:
    """The rewards of the graded rollouts, each once."""
    return list({_rollout(sample): float(sample.reward) for sample in samples if sample.reward is not None}.values())


def _rollout(sample: Any) -> object:
    return sample.index if sample.rollout_id is None else sample.rollout_id


def _or_mean(reward: float | None, verdicts: Sequence[float]) -> float:
    if reward is not None:
        return float(reward)
    return fmean(verdicts) if verdicts else 0.0


def _centred(reward: float | None, verdicts: Sequence[float], *, scaled: bool) -> float:
    if reward is None:
        return 0.0
    distance = float(reward) - fmean(verdicts)
    return distance / (stdev(verdicts) + EPSILON) if scaled and len(verdicts) > 1 else distance
