"""Tiny random models as Hugging Face makes them, saved as folders with a tokenizer."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 260,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=8, tie_word_embeddings=True)),
    "llama-biased": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=8, attention_bias=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, rope_theta=5000.0)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
}


def save_tokenizer(folder: Path, vocab: int) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<eos>", *letters, *(f"{a}{b}" for a, b in itertools.pairwise(letters))][:vocab]
    merges = [(word[0], word[1]) for word in words if len(word) == 2]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def save_model(kind: str, folder: Path, *, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    network = MODELS[kind]()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    network.save_pretrained(folder)
    save_tokenizer(folder, SIZES["vocab_size"])
    return folder
