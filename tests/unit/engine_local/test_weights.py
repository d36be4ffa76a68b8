"""An update is whole or does not happen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentrl_engine_local.config import read_config
from agentrl_engine_local.model import Model
from agentrl_engine_local.weights import WeightError, WeightGroups, load_folder


@pytest.fixture
def model(llama: Path) -> Model:
    fresh = Model(read_config(llama), dtype=torch.float32, slots=1, context=8)
    load_folder(fresh.parameters, llama, tied_head=True)
    return fresh


def changed(llama: Path, folder: Path, change) -> Path:
    """A copy of the model's weights, doubled and then spoilt by ``change``."""
    weights = {name: tensor * 2 for name, tensor in load_file(llama / "model.safetensors").items()}
    change(weights)
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.pop("model.norm.weight"), "missing.*model.norm.weight"),
        (lambda w: w.update({"model.extra.weight": torch.zeros(1)}), "no weight called model.extra.weight"),
        (
            lambda w: w.update({"model.norm.weight": torch.zeros(3)}),
            r"model.norm.weight has the shape \[48\] here, not \[3\]",
        ),
    ],
)
def test_weights_that_do_not_fit_change_nothing(model: Model, llama: Path, tmp_path: Path, change, words: str) -> None:
    before = {name: tensor.clone() for name, tensor in model.parameters.items()}
    with pytest.raises(WeightError, match=words):
        load_folder(model.parameters, changed(llama, tmp_path, change), tied_head=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.parameters.items())


def test_weights_that_fit_are_taken(model: Model, llama: Path, tmp_path: Path) -> None:
    before = model.parameters["model.layers.1.self_attn.k_proj.weight"].clone()
    load_folder(model.parameters, changed(llama, tmp_path, lambda weights: None), tied_head=True)
    assert torch.equal(model.parameters["model.layers.1.self_attn.k_proj.weight"], before * 2)


def test_a_tied_head_may_come_along(model: Model, llama: Path, tmp_path: Path) -> None:
    def add_head(weights: dict[str, torch.Tensor]) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()

    load_folder(model.parameters, changed(llama, tmp_path, add_head), tied_head=True)


def test_shards_are_found_by_their_index(model: Model, llama: Path, tmp_path: Path) -> None:
    weights = load_file(llama / "model.safetensors")
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, members in parts.items():
        save_file({name: weights[name] * 3 for name in members}, tmp_path / file)
    index = {name: file for file, members in parts.items() for name in members}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    load_folder(model.parameters, tmp_path, tied_head=True)
    assert torch.equal(model.parameters["model.norm.weight"], weights["model.norm.weight"] * 3)


def test_a_group_must_be_joined_before_it_sends(model: Model) -> None:
    with pytest.raises(WeightError, match="no weight group x"):
        WeightGroups().receive("x", model.parameters, [], tied_head=True)
    with pytest.raises(WeightError, match="no weight group x"):
        WeightGroups().leave("x")


def test_only_gloo_is_spoken() -> None:
    with pytest.raises(WeightError, match="gloo, not nccl"):
        WeightGroups().join("x", address="127.0.0.1", port=1, rank=1, world_size=2, backend="nccl")
