"""The network computes what Hugging Face's does, however its tokens are cut into steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import MODELS, save_model
from transformers import AutoModelForCausalLM

from agentrl_engine_local.config import read_config
from agentrl_engine_local.model import Model, Span
from agentrl_engine_local.weights import load_folder

IDS = [5, 9, 3, 77, 120, 44, 8, 8, 19, 201, 34, 2]
OTHER = [1, 2, 3, 200]
EXACT = 5e-5


def load(folder: Path) -> Model:
    config = read_config(folder)
    model = Model(config, dtype=torch.float32, slots=4, context=64)
    load_folder(model.parameters, folder, tied_head=config.tied_head)
    return model


def expected(folder: Path, ids: list[int]) -> torch.Tensor:
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return torch.log_softmax(network(torch.tensor([ids])).logits[0, -1], -1)


def assert_same(logits: torch.Tensor, folder: Path, ids: list[int]) -> None:
    assert (torch.log_softmax(logits, -1) - expected(folder, ids)).abs().max() < EXACT


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_every_known_shape_is_exact(kind: str, tmp_path: Path) -> None:
    folder = save_model(kind, tmp_path)
    assert_same(load(folder).forward([Span(0, 0, IDS)])[0], folder, IDS)


def test_a_ragged_batch_is_exact_for_each(llama: Path) -> None:
    model = load(llama)
    model.forward([Span(2, 0, IDS[:7])])
    logits = model.forward([Span(2, 7, IDS[7:8]), Span(0, 0, OTHER), Span(1, 0, IDS[:1])])
    for row, ids in zip(logits, (IDS[:8], OTHER, IDS[:1]), strict=True):
        assert_same(row, llama, ids)


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_prompt_in_two_pieces_is_exact(llama: Path, cut: int) -> None:
    model = load(llama)
    model.forward([Span(1, 0, IDS[:cut])])
    assert_same(model.forward([Span(1, cut, IDS[cut:])])[0], llama, IDS)


def test_a_copied_prefix_is_exact_and_independent(llama: Path) -> None:
    model = load(llama)
    model.forward([Span(0, 0, IDS[:6])])
    model.copy_prefix(0, 3, 4)
    branch = [*IDS[:4], *OTHER]
    assert_same(model.forward([Span(3, 4, OTHER)])[0], llama, branch)
    assert_same(model.forward([Span(0, 6, IDS[6:])])[0], llama, IDS)


def test_bfloat16_stays_near(llama: Path) -> None:
    config = read_config(llama)
    model = Model(config, dtype=torch.bfloat16, slots=1, context=64)
    load_folder(model.parameters, llama, tied_head=config.tied_head)
    logits = model.forward([Span(0, 0, IDS)])[0]
    assert logits.dtype == torch.float32
    near = torch.log_softmax(logits, -1).exp() - expected(llama, IDS).exp()
    assert near.abs().sum() < 0.2
