"""The shape of a model, read from its HF folder.

Known: dense decoders shaped like Llama, Qwen2 and Qwen3. Anything else is refused with a word about the SGLang engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.api import UsageError

_QKV_BIAS = {"LlamaForCausalLM": False, "Qwen2ForCausalLM": True, "Qwen3ForCausalLM": False}
_QK_NORM = {"Qwen3ForCausalLM"}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes are counts; ``stop_ids`` end a reply; ``context`` is the number of positions that the model was made for."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    rms_eps: float
    rope_theta: float
    context: int
    tied_head: bool
    qkv_bias: bool
    output_bias: bool
    qk_norm: bool
    stop_ids: frozenset[int]


def read_config(model_dir: Path) -> ModelConfig:
    """Read ``config.json`` and ``generation_config.json``. Raises: UsageError for a model that this engine cannot run."""
    path = model_dir / "config.json"
    if not path.exists():
        raise UsageError(f"{model_dir} is not a model folder: it has no config.json")
    raw = json.loads(path.read_text())
    architecture = (raw.get("architectures") or ["?"])[0]
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    _refuse_unknown(raw, architecture, rope)
    heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
    bias = raw.get("attention_bias", _QKV_BIAS[architecture])
    return ModelConfig(
        layers=raw["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=raw.get("num_key_value_heads") or heads,
        head_size=raw.get("head_dim") or hidden // heads,
        ffn=raw["intermediate_size"],
        vocab=raw["vocab_size"],
        rms_eps=raw.get("rms_norm_eps", 1e-6),
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        context=raw.get("max_position_embeddings", 2048),
        tied_head=raw.get("tie_word_embeddings", False),
        qkv_bias=bias,
        output_bias=bias and architecture != "Qwen2ForCausalLM",
        qk_norm=architecture in _QK_NORM,
        stop_ids=_stop_ids(model_dir, raw),
    )


def _refuse_unknown(raw: Mapping[str, Any], architecture: str, rope: Mapping[str, Any]) -> None:
    odd = [
        architecture not in _QKV_BIAS and f"architecture {architecture}",
        rope.get("rope_type", rope.get("type", "default")) != "default" and f"scaled positions {dict(rope)}",
        raw.get("hidden_act", "silu") != "silu" and f"activation {raw.get('hidden_act')}",
        raw.get("mlp_bias", False) and "biases in the feed-forward layers",
        raw.get("use_sliding_window", False) and "a sliding window",
        raw.get("quantization_config") and "quantised weights",
    ]
    if found := [what for what in odd if what]:
        raise UsageError(f"the local engine cannot run a model with {', '.join(found)}; choose AGENTRL_ENGINE=sglang")


def _stop_ids(model_dir: Path, raw: Mapping[str, Any]) -> frozenset[int]:
    found: set[int] = set()
    generation = model_dir / "generation_config.json"
    for source in (raw, json.loads(generation.read_text()) if generation.exists() else {}):
        ids = source.get("eos_token_id")
        found |= set(ids) if isinstance(ids, list) else set() if ids is None else {ids}
    return frozenset(found)
