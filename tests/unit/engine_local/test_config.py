"""What the engine knows, and that it refuses what it does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import UsageError
from agentrl_engine_local.config import read_config

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "eos_token_id": 3,
}


def write(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    return folder


def test_defaults_follow_from_the_rest(tmp_path: Path) -> None:
    config = read_config(write(tmp_path))
    assert (config.kv_heads, config.head_size, config.tied_head, config.qkv_bias) == (4, 16, False, False)


@pytest.mark.parametrize(
    "rope", [{"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}]
)
def test_both_ways_of_writing_the_rotation_base(tmp_path: Path, rope: dict[str, Any]) -> None:
    assert read_config(write(tmp_path, **rope)).rope_theta == 5e5


def test_end_ids_come_from_both_files(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 5]}')
    assert read_config(tmp_path).stop_ids == {3, 4, 5}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "Mixtral"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "yarn"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "llama3"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"mlp_bias": True}, "bias"),
        ({"use_sliding_window": True}, "window"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=f"{word}.*AGENTRL_ENGINE=sglang"):
        read_config(write(tmp_path, **change))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        read_config(tmp_path)
