"""SGLang's native JSON: request bodies in, answers out. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentrl_engine_local.requests import Progress, Sampling


class Refused(Exception):
    """The body is answered with 400 and this message."""


class SamplingBody(BaseModel):
    """``sampling_params``. A parameter that would change the reply and is not known here is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")

    max_new_tokens: int = Field(default=128, ge=1)
    min_new_tokens: int = Field(default=0, ge=0)
    temperature: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=-1, ge=-1)
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    sampling_seed: int | None = None
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    spaces_between_special_tokens: bool = True
    n: Literal[1] = 1
    min_p: Literal[0] = 0
    frequency_penalty: Literal[0] = 0
    presence_penalty: Literal[0] = 0
    repetition_penalty: Literal[1] = 1

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, stop: object) -> object:
        return (stop,) if isinstance(stop, str) else stop or ()

    @field_validator("stop_token_ids", mode="before")
    @classmethod
    def _none_is_empty(cls, ids: object) -> object:
        return ids or ()


class GenerateBody(BaseModel):
    """A ``/generate`` body."""

    input_ids: list[int] | list[list[int]] = Field(min_length=1)
    sampling_params: SamplingBody | list[SamplingBody] = SamplingBody()
    rid: str | list[str] | None = None
    return_logprob: bool | list[bool] = False
    logprob_start_len: Literal[-1] = -1
    top_logprobs_num: Literal[0] = 0
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must fit into. ``stop_ids``: the model's own end-of-text ids."""

    context: int
    vocab: int
    stop_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One generation of a body. ``batch``: the name of the whole, when that has one."""

    rid: str
    batch: str | None
    ids: tuple[int, ...]
    body: SamplingBody
    sampling: Sampling
    return_logprob: bool


def read_generate(body: object, limits: Limits) -> tuple[list[Wanted], bool, bool]:
    """→ (the generations, whether the body was a batch, whether it streams). Raises: Refused."""
    try:
        asked = GenerateBody.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refused(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    batch = isinstance(asked.input_ids[0], list)
    prompts: Sequence[Any] = asked.input_ids if batch else [asked.input_ids]
    if batch and asked.stream:
        raise Refused("a batch cannot be streamed; send single requests")
    rids = _rids(asked.rid, len(prompts), batch=batch)
    params = _each(asked.sampling_params, len(prompts), "sampling_params")
    logprobs = _each(asked.return_logprob, len(prompts), "return_logprob")
    found = zip(rids, prompts, params, logprobs, strict=True)
    name = asked.rid if batch and isinstance(asked.rid, str) else None
    return [_wanted(rid, name, ids, p, limits, logprob=lp) for rid, ids, p, lp in found], batch, asked.stream


def _each(value: Any, count: int, name: str) -> list[Any]:
    values = value if isinstance(value, list) else [value] * count
    if len(values) != count:
        raise Refused(f"{len(values)} {name} for {count} prompts")
    return values


def _rids(rid: str | list[str] | None, count: int, *, batch: bool) -> list[str]:
    if isinstance(rid, str):
        return [f"{rid}_{i}" for i in range(count)] if batch else [rid]
    return [uuid.uuid4().hex for _ in range(count)] if rid is None else _each(rid, count, "rid")


def _wanted(
    rid: str, batch: str | None, ids: Sequence[int], body: SamplingBody, limits: Limits, *, logprob: bool
) -> Wanted:
    if not ids:
        raise Refused("input_ids: the prompt is empty")
    if not 0 <= min(ids) <= max(ids) < limits.vocab:
        raise Refused(f"input_ids: ids must be in [0, {limits.vocab})")
    if len(ids) >= limits.context:
        raise Refused(
            f"The input ({len(ids)} tokens) is longer than the model's context length ({limits.context} tokens)."
        )
    total = len(ids) + body.max_new_tokens
    if total > limits.context:
        raise Refused(
            f"Requested token count exceeds the model's maximum context length of {limits.context} tokens. "
            f"You requested a total of {total} tokens: {len(ids)} of the prompt and {body.max_new_tokens} of the completion."
        )
    if body.min_new_tokens > body.max_new_tokens:
        raise Refused("min_new_tokens must not be greater than max_new_tokens")
    return Wanted(rid, batch, tuple(ids), body, _sampling(body, limits), logprob)


def _sampling(body: SamplingBody, limits: Limits) -> Sampling:
    ends = limits.stop_ids | body.stop_token_ids
    return Sampling(
        max_new_tokens=body.max_new_tokens,
        min_new_tokens=body.min_new_tokens,
        temperature=body.temperature if body.temperature >= 1e-6 else 0.0,
        top_p=body.top_p,
        top_k=max(body.top_k, 0),
        stop=body.stop,
        stop_ids=frozenset() if body.ignore_eos else ends,
        never_first=ends,
        seed=body.sampling_seed,
    )


def answer(wanted: Wanted, progress: Progress, decode: Callable[..., str], seconds: float) -> dict[str, Any]:
    """The JSON of one generation, complete or so far."""
    meta: dict[str, Any] = {
        "id": wanted.rid,
        "finish_reason": progress.finish,
        "prompt_tokens": len(wanted.ids),
        "completion_tokens": len(progress.output),
        "cached_tokens": progress.cached_tokens,
        "weight_version": progress.weight_version,
        "weight_versions": _version_spans(progress),
        "e2e_latency": seconds,
    }
    if wanted.return_logprob:
        pairs = zip(progress.logprobs, progress.output, strict=True)
        meta["output_token_logprobs"] = [[logprob, token, None] for logprob, token in pairs]
    return {"text": _text(wanted, progress, decode), "output_ids": list(progress.output), "meta_info": meta}


def _version_spans(progress: Progress) -> list[dict[str, Any]]:
    ends = [start for _, start in progress.versions[1:]] + [len(progress.output)]
    spans = zip(progress.versions, ends, strict=False)
    return [{"version": version, "start": start, "end": end} for (version, start), end in spans]


def _text(wanted: Wanted, progress: Progress, decode: Callable[..., str]) -> str:
    text = decode(progress.output, skip_special_tokens=wanted.body.skip_special_tokens)
    matched: Mapping[str, Any] = progress.finish or {}
    if isinstance(stop := matched.get("matched"), str) and not wanted.body.no_stop_trim:
        text = text.partition(stop)[0]
    return text
