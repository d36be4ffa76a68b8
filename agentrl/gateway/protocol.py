"""SGLang's JSON, checked: nothing inexact about sampled ids and logprobs gets past here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, cast

import orjson

from agentrl.errors import ContextOverflow, EngineError, EngineUnavailable
from agentrl.types import Generation, SamplingParams

_CONTEXT_LIMIT = re.compile(r"context length(?: of)? \(?(\d+) tokens")
_CONTEXT_WANTED = re.compile(r"total of (\d+) tokens")


def sampling_json(params: SamplingParams) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "max_new_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "stop": list(params.stop),
        "stop_token_ids": list(params.stop_token_ids),
    }
    if params.seed is not None:
        wanted["sampling_seed"] = params.seed
    return wanted


def loads(raw: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise EngineError(f"the engine answered something that is not JSON: {raw[:200]!r}") from error
    if not isinstance(parsed, dict):
        raise EngineError(f"the engine answered {type(parsed).__name__} where an object was expected")
    return parsed


def refusal(path: str, status: int, raw: bytes, prompt_tokens: int) -> Exception:
    """The typed error behind a status other than 200."""
    text = raw[:2000].decode("utf-8", "replace")
    limit = _CONTEXT_LIMIT.search(text)
    if status == 400 and limit:
        wanted = _CONTEXT_WANTED.search(text)
        # A prompt may not fill the context: at least one token must fit behind it.
        return ContextOverflow(int(wanted.group(1)) if wanted else prompt_tokens, int(limit.group(1)) - 1)
    if status in (429, 502, 503, 504):
        return EngineUnavailable(f"the engine is overloaded or restarting: HTTP {status} on {path}: {text}")
    return EngineError(f"the engine refused {path}: HTTP {status}: {text}")


def check_success(answer: Mapping[str, Any], what: str) -> None:
    if not answer.get("success", True):
        raise EngineError(f"the engine could not {what}: {answer.get('message', answer)}")


def generation_of(answer: Mapping[str, Any], request_id: str, version: str) -> Generation:
    """Check and convert. Raises: EngineError when anything about ids and logprobs is not exactly as promised."""
    meta = answer.get("meta_info")
    if not isinstance(meta, dict):
        raise EngineError("the engine answered without meta_info: is this SGLang's /generate?")
    finish = _finish(meta)
    ids, logprobs = _sampled(answer, meta)
    if not ids and finish != "abort":
        raise EngineError(f"the engine finished ({finish}) without sampling a token")
    spans = [str(v.get("version", "")) for v in meta.get("weight_versions") or () if isinstance(v, dict)]
    last = str(meta.get("weight_version", spans[-1] if spans else version))
    return Generation(request_id, ids, logprobs, finish, spans[-1] if spans else last, spans[0] if spans else version)


def _finish(meta: Mapping[str, Any]) -> Literal["stop", "length", "abort"]:
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if kind not in ("stop", "length", "abort"):
        raise EngineError(f"the engine gave an unknown finish_reason: {reason!r}")
    return cast(Literal["stop", "length", "abort"], kind)


def _sampled(answer: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    entries, output = meta.get("output_token_logprobs"), answer.get("output_ids")
    if not isinstance(output, list):
        raise EngineError("the engine answered without output_ids: SGLang 0.5.9 or later is needed")
    if not isinstance(entries, list):
        if not output:
            return (), ()
        raise EngineError("the engine returned no logprobs for sampled tokens (output_token_logprobs is missing)")
    if len(entries) != len(output):
        raise EngineError(f"the engine returned {len(entries)} logprobs for {len(output)} sampled tokens")
    try:
        ids = tuple(int(entry[1]) for entry in entries)
        logprobs = tuple(float(entry[0]) for entry in entries)
    except (TypeError, ValueError, IndexError) as error:
        raise EngineError("the engine returned a logprob entry that is None or malformed") from error
    if list(ids) != output:
        raise EngineError("the ids beside the engine's logprobs differ from its output_ids")
    if not all(map(math.isfinite, logprobs)):
        raise EngineError("the engine returned a logprob that is not finite")
    return ids, logprobs
