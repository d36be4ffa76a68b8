"""From a GGUF file of a Llama to an HF model: weights, configuration and tokenizer, without the llama.cpp runtime.

Not a general converter: it knows the dense Llama architecture and byte-level BPE, and refuses the rest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from agentrl.api import UsageError

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3


class GgufModel:
    """A GGUF file, opened. Raises: UsageError when it holds another architecture or tokenizer."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        for key, known in (("general.architecture", "llama"), ("tokenizer.ggml.pre", "smollm")):
            if self._field(key) != known:
                raise UsageError(f"{path.name}: {key} is {self._field(key)!r}, only {known!r} can be converted")

    def _field(self, key: str) -> Any:
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        eps = float(f"{self._field('llama.attention.layer_norm_rms_epsilon'):.6g}")  # stored as float32
        heads, hidden = self._field("llama.attention.head_count"), self._field("llama.embedding_length")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "bfloat16",
            "hidden_size": hidden,
            "intermediate_size": self._field("llama.feed_forward_length"),
            "num_hidden_layers": self._field("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._field("llama.attention.head_count_kv"),
            "head_dim": hidden // heads,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rms_norm_eps": eps,
            "rope_theta": self._field("llama.rope.freq_base"),
            "rope_parameters": {"rope_type": "default", "rope_theta": self._field("llama.rope.freq_base")},
            "max_position_embeddings": self._field("llama.context_length"),
            "vocab_size": self._field("llama.vocab_size"),
            "tie_word_embeddings": not any(t.name == "output.weight" for t in self._reader.tensors),
            **self.special_ids(),
        }

    def special_ids(self) -> dict[str, int]:
        """The ids of the begin, end and padding tokens, as ``config.json`` names them."""
        keys = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
        return {name: self._field(f"tokenizer.ggml.{key}") for name, key in keys.items()}

    def weights(self) -> dict[str, torch.Tensor]:
        """HF name → dequantised float32 tensor."""
        return {_hf_name(tensor.name): torch.from_numpy(self._weight(tensor)) for tensor in self._reader.tensors}

    def _weight(self, tensor: gguf.ReaderTensor) -> np.ndarray[Any, np.dtype[np.float32]]:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("attn_q.weight"):
            weight = _halves(weight, self._field("llama.attention.head_count"))
        elif tensor.name.endswith("attn_k.weight"):
            weight = _halves(weight, self._field("llama.attention.head_count_kv"))
        return np.array(weight)  # a writable copy

    def tokenizer(self) -> Tokenizer:
        """The byte-level BPE tokenizer, digits split one by one."""
        tokens: list[str] = self._field("tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in self._field("tokenizer.ggml.merges")]
        tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        kinds = self._field("tokenizer.ggml.token_type")
        control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
        return tokenizer

    def tokens(self, *ids: int) -> list[str]:
        """The token strings of ``ids``."""
        return [self._field("tokenizer.ggml.tokens")[i] for i in ids]


def _hf_name(name: str) -> str:
    if layer := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        return f"model.layers.{layer[1]}.{_LAYER[layer[2]]}.weight"
    return f"{_TOP[name.removesuffix('.weight')]}.weight"


def _halves(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """GGUF rotates neighbouring rows of a head, HF the halves of a head: bring the even rows first."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
