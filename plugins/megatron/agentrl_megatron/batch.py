"""Groups to training rows: each sample with its advantage, its loss weights and the engine's logprobs.

The one rule of weighing: every rollout in the batch counts the same. Its weight is 1 / (rollouts in the batch), shared
among its samples by ``Sample.loss_weight`` and, within a sample, equally among its trained tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from agentrl.api import Group, Rollout, Sample, TrainerError
from agentrl_megatron.advantages import group_advantages


@dataclass(frozen=True, slots=True)
class Row:
    """A sample as it is trained. ``token_weight`` is the weight of each of its ``trained`` tokens in the loss."""

    sample: Sample
    advantage: float
    token_weight: float
    trained: int


@dataclass(frozen=True, slots=True)
class Batch:
    """All rows of an iteration and what is worth reporting about how they came about."""

    rows: tuple[Row, ...]
    metrics: dict[str, float]


def assemble(groups: Sequence[Group], *, advantage_std: bool) -> Batch:
    """The batch of one iteration; without rows when every group is uniform.

    Aborted rollouts have no part in it, nor have rollouts without a trained token.
    Raises: TrainerError for a sample whose parts differ in length or whose loss weights are not usable.
    """
    scored = [(group, [r.reward for r in group.graded if r.reward is not None]) for group in groups]
    advantages = [(group, group_advantages(rewards, by_std=advantage_std)) for group, rewards in scored]
    chosen = [pair for group, values in advantages if values for pair in zip(group.graded, values, strict=True)]
    trained = [(rollout, advantage) for rollout, advantage in chosen if _trained_samples(rollout)]
    rows = tuple(row for rollout, advantage in trained for row in _rows(rollout, advantage, len(trained)))
    uniform = sum(values is None and len(group.graded) > 0 for group, values in advantages)
    return Batch(rows, _metrics(groups, uniform, [advantage for _, advantage in trained], rows))


def _trained_samples(rollout: Rollout) -> list[Sample]:
    return [sample for sample in rollout.samples if any(sample.loss_mask)]


def _rows(rollout: Rollout, advantage: float, rollouts: int) -> Iterator[Row]:
    for sample in _trained_samples(rollout):
        _check(sample)
        trained = sum(sample.loss_mask)
        yield Row(sample, advantage, sample.loss_weight / trained / rollouts, trained)


def _check(sample: Sample) -> None:
    name = f"sample {sample.index} of rollout {sample.rollout_id}"
    if not len(sample.tokens) == len(sample.loss_mask) == len(sample.logprobs):
        raise TrainerError(f"{name}: tokens, mask and logprobs differ in length")
    if sample.loss_mask[0]:
        raise TrainerError(f"{name}: the first token is trained, but nothing precedes it that could predict it")
    if not 0 < sample.loss_weight <= 1:
        raise TrainerError(f"{name}: its loss weight {sample.loss_weight} is not in (0, 1]")


def _metrics(
    groups: Sequence[Group], uniform: int, advantages: Sequence[float], rows: Sequence[Row]
) -> dict[str, float]:
    metrics = {
        "groups_uniform": float(uniform),
        "groups_ungraded": float(sum(not group.graded for group in groups)),
        "rollouts_trained": float(len(advantages)),
        "samples_trained": float(len(rows)),
        "tokens_updated": float(sum(row.trained for row in rows)),
    }
    if advantages:
        metrics["advantage_mean"] = fmean(advantages)
        metrics["advantage_std"] = pstdev(advantages)
        metrics["advantage_max"] = max(advantages)
        metrics["advantage_min"] = min(advantages)
    return metrics
