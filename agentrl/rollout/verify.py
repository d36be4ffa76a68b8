"""The replay check: does every sample consist of exactly what the engine returned?

It trusts nothing but the recorded ``/generate`` calls: it does not use the code that built the samples. For each rollout:

1. every turn's prompt and sampled ids are those of one recorded call; a call without a turn is counted as dropped;
2. a sample that trains a turn starts with that call's ``input_ids + output_ids``, with mask 1 and the call's own
   log-probabilities on the output;
3. mask 1 stands nowhere else;
4. every call is trained exactly once in its rollout, or its turn says why not;
5. the loss weights of the rollout sum to 1, and all its samples carry its reward; aborted rollouts have neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentrl.types import EngineCall, Rollout, Sample, Turn


class Violation(Exception):
    """One broken promise; the message says where."""


@dataclass(slots=True)
class Report:
    """Totals of a verified journal. ``excluded``: turns kept out of training, by reason."""

    rollouts: int = 0
    aborted: int = 0
    samples: int = 0
    calls: int = 0
    tokens_sampled: int = 0
    tokens_trained: int = 0
    excluded: Counter[str] = field(default_factory=Counter)
    forks: Counter[str] = field(default_factory=Counter)


def verify(rollouts: Iterable[Rollout]) -> Report:
    """Check all rollouts. Raises: Violation at the first broken promise."""
    report, settled = Report(), set[str]()
    for rollout in rollouts:
        if rollout.id in settled:
            raise Violation(f"{rollout.id}: recorded again after it had a reward")
        if rollout.reward is not None:
            settled.add(rollout.id)
        _verify_rollout(rollout, report)
    return report


def _verify_rollout(rollout: Rollout, report: Report) -> None:
    report.rollouts += 1
    turns = {turn.id: turn for turn in rollout.trajectory.turns}
    calls = _calls_by_turn(rollout)
    report.calls += len(rollout.trajectory.calls)
    report.excluded["dropped"] += len(rollout.trajectory.calls) - len(calls)
    report.forks.update(turn.fork_reason for turn in turns.values() if turn.fork_reason)
    if rollout.reward is None:
        report.aborted += 1
        if rollout.samples:
            raise Violation(f"{rollout.id}: aborted, but has samples")
        return
    trained = Counter[str]()
    for sample in rollout.samples:
        trained.update(_verify_sample(rollout, sample, turns, calls))
    _verify_once(rollout, turns, trained, report)
    _verify_weights(rollout)
    report.samples += len(rollout.samples)
    report.tokens_sampled += sum(len(call.output_ids) for call in calls.values())
    report.tokens_trained += sum(sum(sample.loss_mask) for sample in rollout.samples)


def _calls_by_turn(rollout: Rollout) -> dict[str, EngineCall]:
    """Turn id → its recorded call, after proof that the turn's ids are the call's."""
    by_request = {call.request_id: call for call in rollout.trajectory.calls}
    if len(by_request) != len(rollout.trajectory.calls):
        raise Violation(f"{rollout.id}: two engine calls share one request id")
    calls: dict[str, EngineCall] = {}
    prompts: dict[str, tuple[int, ...]] = {}
    for turn in rollout.trajectory.turns:
        where = f"{rollout.id} turn {turn.id}"
        call = by_request.pop(turn.generation.request_id, None)
        if call is None:
            raise Violation(f"{where}: no engine call {turn.generation.request_id}, or one that another turn has")
        if turn.parent_id is not None and turn.parent_id not in prompts:
            raise Violation(f"{where}: its parent {turn.parent_id} is not recorded before it")
        prompt = (prompts[turn.parent_id] if turn.parent_id else ()) + tuple(turn.new_ids)
        if prompt != call.input_ids:
            raise Violation(
                f"{where}: its prompt is not what the engine was sent ({_difference(prompt, call.input_ids)})"
            )
        if turn.generation.ids != call.output_ids or turn.generation.logprobs != call.logprobs:
            raise Violation(f"{where}: its sampled ids or log-probabilities are not what the engine returned")
        prompts[turn.id] = prompt + turn.generation.ids
        calls[turn.id] = call
    return calls


def _difference(a: tuple[int, ...], b: tuple[int, ...]) -> str:
    index = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"{len(a)} ids against {len(b)}, first difference at {index}"


def _verify_sample(
    rollout: Rollout, sample: Sample, turns: dict[str, Turn], calls: dict[str, EngineCall]
) -> Iterable[str]:
    where = f"{rollout.id} sample {sample.index}"
    if not len(sample.tokens) == len(sample.loss_mask) == len(sample.logprobs):
        raise Violation(f"{where}: tokens, loss_mask and logprobs differ in length")
    if sample.reward != rollout.reward:
        raise Violation(f"{where}: reward {sample.reward} is not its rollout's {rollout.reward}")
    expected = [0] * len(sample.tokens)
    for turn_id in sample.turn_ids:
        if turn_id not in calls:
            raise Violation(f"{where}: trains turn {turn_id}, which is not recorded")
        if not turns[turn_id].trainable:
            raise Violation(f"{where}: trains turn {turn_id}, which is excluded ({turns[turn_id].excluded})")
        call = calls[turn_id]
        start, end = len(call.input_ids), len(call.input_ids) + len(call.output_ids)
        if sample.tokens[:end] != call.input_ids + call.output_ids:
            raise Violation(f"{where}: does not start with the ids of call {call.request_id}")
        if sample.logprobs[start:end] != call.logprobs:
            raise Violation(f"{where}: log-probabilities of call {call.request_id} were changed")
        expected[start:end] = [1] * (end - start)
    if tuple(expected) != sample.loss_mask:
        index = next(i for i, (a, b) in enumerate(zip(expected, sample.loss_mask, strict=True)) if a != b)
        raise Violation(f"{where}: mask is {sample.loss_mask[index]} at {index}, where it must be {expected[index]}")
    return sample.turn_ids


def _verify_once(rollout: Rollout, turns: dict[str, Turn], trained: Counter[str], report: Report) -> None:
    cut = any(sample.truncated for sample in rollout.samples)
    for turn in turns.values():
        if trained[turn.id] > 1:
            raise Violation(f"{rollout.id} turn {turn.id}: trained {trained[turn.id]} times")
        if trained[turn.id] or not turn.generation.ids:
            continue
        if turn.trainable and not cut:
            raise Violation(f"{rollout.id} turn {turn.id}: sampled but never trained, and nothing says why")
        report.excluded[turn.excluded or "sample_too_long"] += 1


def _verify_weights(rollout: Rollout) -> None:
    total = sum(sample.loss_weight for sample in rollout.samples)
    if rollout.samples and abs(total - 1.0) > 1e-9:
        raise Violation(f"{rollout.id}: the loss weights of its samples sum to {total}, not 1")
