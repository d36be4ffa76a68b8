"""Tiny random models, and rollouts over their vocabulary."""

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from agentrl.api import ExitStatus, Group, Outcome, Rollout, Sample, TrainSpec
from agentrl.types import Trajectory

VOCABULARY = 96


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory) -> Path:
    """Two layers, 4 heads in 2 groups, tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return _save(tmp_path_factory, LlamaForCausalLM, LlamaConfig(**_shape(), tie_word_embeddings=True))


@pytest.fixture(scope="session")
def tiny_qwen3(tmp_path_factory) -> Path:
    """Two layers with normalised queries and keys, an output layer of its own."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return _save(tmp_path_factory, Qwen3ForCausalLM, Qwen3Config(**_shape(), head_dim=16, tie_word_embeddings=False))


def _shape():
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }


def _save(factory, model, config) -> Path:
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = factory.mktemp(config.model_type)
    torch.manual_seed(7)
    made = model(config)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    made.save_pretrained(folder)
    words = {f"w{i}": i for i in range(VOCABULARY)}
    Tokenizer(WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def make_sample():
    """A sample of random tokens: ``prompt`` untrained ones, then ``trained`` ones, logprobs around those of a uniform policy."""

    def make(rollout_id="r", *, prompt=3, trained=5, seed=0, **fields) -> Sample:
        rng = random.Random(f"{rollout_id}-{seed}")
        mask = (0,) * prompt + (1,) * trained
        defaults = {
            "rollout_id": rollout_id,
            "index": 0,
            "tokens": tuple(rng.randrange(VOCABULARY) for _ in mask),
            "loss_mask": mask,
            "logprobs": tuple(m * (-4.6 + rng.uniform(-0.3, 0.3)) for m in mask),
            "loss_weight": 1.0,
            "reward": 0.0,
        }
        return Sample(**{**defaults, **fields})

    return make


@pytest.fixture
def make_group(make_sample):
    """A group with one rollout for each reward (None: aborted); ``samples`` of the first may be given."""

    def make(name, rewards, *, samples=None, seed=0) -> Group:
        def rollout(i, reward):
            identity = f"{name}-{i}"
            made = (make_sample(identity, trained=4 + i, seed=seed, reward=reward),) if reward is not None else ()
            aborted = reward is None
            return Rollout(
                id=identity,
                group_id=name,
                task_id=name,
                level="",
                iteration=0,
                outcome=Outcome.ABORTED if aborted else Outcome.GRADED,
                exit_status=ExitStatus.SANDBOX_LOST if aborted else ExitStatus.SOLVED,
                agent_end=None,
                reward=reward,
                grade=None,
                samples=samples if samples is not None and i == 0 else made,
                trajectory=Trajectory(()),
                seconds={},
            )

        return Group(name, name, tuple(rollout(i, reward) for i, reward in enumerate(rewards)))

    return make


@pytest.fixture
def make_spec(tmp_path):
    """A spec with folders of its own."""

    def make(model_dir: Path, **fields) -> TrainSpec:
        defaults = {
            "model_dir": model_dir,
            "checkpoint_dir": tmp_path / "checkpoints",
            "log_dir": tmp_path / "logs",
            "dtype": "float32",
            "seed": 1,
            "first_iteration": 0,
            "iterations": 1,
            "checkpoint_every": 0,
            "context_tokens": 128,
        }
        return TrainSpec(**{**defaults, **fields})

    return make
