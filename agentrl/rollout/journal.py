"""The journal of a run: one JSON line for each finished rollout, appended and never rewritten.

A line holds everything that ``agentrl verify`` needs (the raw engine calls, the turns, the samples) and everything that
a resumed run needs to go on without sampling again. Ids that a record shares with the one before it are written once:
``input_ids`` of a call as (how many ids it shares with an earlier call, the rest), masks as spans, log-probabilities
only where the mask is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.outcomes import AgentEnd, ExitStatus, Outcome
from agentrl.rollout.lines import read_lines
from agentrl.types import EngineCall, Generation, Grade, Rollout, Sample, Trajectory, Turn

FILE = "journal.jsonl"


def read_journal(path: Path) -> Iterator[Rollout]:
    """All rollouts in the order in which they finished."""
    return map(decode, read_lines(path))


# -------------------------------------------------------------------------------------------------- encoding


def encode(rollout: Rollout) -> dict[str, Any]:
    """A rollout as JSON values; :func:`decode` is the inverse."""
    return {
        "id": rollout.id,
        "group_id": rollout.group_id,
        "task_id": rollout.task_id,
        "level": rollout.level,
        "iteration": rollout.iteration,
        "attempt": rollout.attempt,
        "outcome": rollout.outcome,
        "exit_status": rollout.exit_status,
        "agent_end": rollout.agent_end,
        "reward": rollout.reward,
        "grade": _encode_grade(rollout.grade),
        "message": rollout.message,
        "details": dict(rollout.details),
        "seconds": dict(rollout.seconds),
        "samples": [_encode_sample(s) for s in rollout.samples],
        "turns": [_encode_turn(t) for t in rollout.trajectory.turns],
        "calls": _encode_calls(rollout.trajectory.calls),
        "counters": dict(rollout.trajectory.counters),
    }


def decode(row: Mapping[str, Any]) -> Rollout:
    """A journal line as the rollout that was written."""
    calls = _decode_calls(row["calls"])
    return Rollout(
        id=row["id"],
        group_id=row["group_id"],
        task_id=row["task_id"],
        level=row["level"],
        iteration=row["iteration"],
        attempt=row["attempt"],
        outcome=Outcome(row["outcome"]),
        exit_status=ExitStatus(row["exit_status"]),
        agent_end=AgentEnd(row["agent_end"]) if row["agent_end"] else None,
        reward=row["reward"],
        grade=_decode_grade(row["grade"]),
        message=row["message"],
        details=row.get("details", {}),
        seconds=row["seconds"],
        samples=tuple(_decode_sample(row["id"], s) for s in row["samples"]),
        trajectory=Trajectory(tuple(_decode_turn(t) for t in row["turns"]), calls, row["counters"]),
    )


def _encode_grade(grade: Grade | None) -> dict[str, Any] | None:
    if grade is None:
        return None
    return {
        "reward": grade.reward,
        "exit_status": grade.exit_status,
        "details": dict(grade.details),
        "restored": list(grade.restored),
    }


def _decode_grade(row: Mapping[str, Any] | None) -> Grade | None:
    if row is None:
        return None
    return Grade(row["reward"], ExitStatus(row["exit_status"]), row["details"], tuple(row["restored"]))


def _encode_sample(sample: Sample) -> dict[str, Any]:
    spans = mask_spans(sample.loss_mask)
    return {
        "index": sample.index,
        "tokens": sample.tokens,
        "spans": spans,
        "logprobs": [sample.logprobs[i] for start, end in spans for i in range(start, end)],
        "loss_weight": sample.loss_weight,
        "reward": sample.reward,
        "turn_ids": sample.turn_ids,
        "weight_versions": sample.weight_versions,
        "truncated": sample.truncated,
    }


def _decode_sample(rollout_id: str, row: Mapping[str, Any]) -> Sample:
    size = len(row["tokens"])
    mask, logprobs, values = [0] * size, [0.0] * size, iter(row["logprobs"])
    for start, end in row["spans"]:
        for i in range(start, end):
            mask[i], logprobs[i] = 1, next(values)
    return Sample(
        rollout_id=rollout_id,
        index=row["index"],
        tokens=tuple(row["tokens"]),
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        loss_weight=row["loss_weight"],
        reward=row["reward"],
        turn_ids=tuple(row["turn_ids"]),
        weight_versions=tuple(row["weight_versions"]),
        truncated=row["truncated"],
    )


def mask_spans(mask: Sequence[int]) -> list[tuple[int, int]]:
    """The half-open spans of 1 in a loss mask."""
    spans: list[tuple[int, int]] = []
    for i, bit in enumerate(mask):
        if bit and spans and spans[-1][1] == i:
            spans[-1] = (spans[-1][0], i + 1)
        elif bit:
            spans.append((i, i + 1))
    return spans


def _encode_turn(turn: Turn) -> dict[str, Any]:
    generation = turn.generation
    return {
        "id": turn.id,
        "parent_id": turn.parent_id,
        "new_ids": list(turn.new_ids),
        "request_id": generation.request_id,
        "ids": generation.ids,
        "logprobs": generation.logprobs,
        "finish": generation.finish,
        "weight_version": generation.weight_version,
        "dispatch_version": generation.dispatch_version,
        "prompt_tokens": turn.prompt_tokens,
        "fork_reason": turn.fork_reason,
        "trainable": turn.trainable,
        "excluded": turn.excluded,
        "lane": turn.lane,
        "started_at": turn.started_at,
        "duration_sec": turn.duration_sec,
    }


def _decode_turn(row: Mapping[str, Any]) -> Turn:
    generation = Generation(
        request_id=row["request_id"],
        ids=tuple(row["ids"]),
        logprobs=tuple(row["logprobs"]),
        finish=row["finish"],
        weight_version=row["weight_version"],
        dispatch_version=row["dispatch_version"],
    )
    return Turn(
        id=row["id"],
        parent_id=row["parent_id"],
        new_ids=tuple(row["new_ids"]),
        generation=generation,
        prompt_tokens=row["prompt_tokens"],
        fork_reason=row["fork_reason"],
        trainable=row["trainable"],
        excluded=row["excluded"],
        lane=row["lane"],
        started_at=row["started_at"],
        duration_sec=row["duration_sec"],
    )


def _encode_calls(calls: Sequence[EngineCall]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    previous: tuple[int, ...] = ()
    for call in calls:
        shared = _shared_prefix(previous, call.input_ids)
        rows.append(
            {
                "request_id": call.request_id,
                "shared": shared,
                "input_ids": call.input_ids[shared:],
                "output_ids": call.output_ids,
                "logprobs": call.logprobs,
                "finish": call.finish,
                "weight_version": call.weight_version,
            }
        )
        previous = call.input_ids + call.output_ids
    return rows


def _decode_calls(rows: Sequence[Mapping[str, Any]]) -> tuple[EngineCall, ...]:
    calls: list[EngineCall] = []
    previous: tuple[int, ...] = ()
    for row in rows:
        input_ids = previous[: row["shared"]] + tuple(row["input_ids"])
        output_ids = tuple(row["output_ids"])
        calls.append(
            EngineCall(
                row["request_id"], input_ids, output_ids, tuple(row["logprobs"]), row["finish"], row["weight_version"]
            )
        )
        previous = input_ids + output_ids
    return tuple(calls)


def _shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix; whole-slice comparison first, since calls mostly extend the one before."""
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    return next(i for i in range(limit) if a[i] != b[i])
