"""The network: a dense decoder in plain torch over a ragged batch, with keys and values in fixed slots of memory.

All tokens of a step, whichever sequences they belong to, go through the linear layers as one matrix; attention is
done for each sequence at its exact length. So prompts and replies mix freely and no result depends on padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from agentrl_engine_local.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens ``ids`` of one sequence: they follow the ``start`` tokens whose keys and values ``slot`` holds."""

    slot: int
    start: int
    ids: Sequence[int]

    @property
    def end(self) -> int:
        """The sequence's length after them."""
        return self.start + len(self.ids)


@dataclass(frozen=True, slots=True)
class _Layer:
    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    ffn_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Model:
    """Weights and the memory of ``slots`` sequences of up to ``context`` tokens each. Used by one thread at a time.

    ``parameters``: HF name → view into the weights; writing into it changes the model. Memory is touched only as far
    as sequences grow.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, slots: int, context: int) -> None:
        self.config, self.dtype = config, dtype
        self.parameters: dict[str, Tensor] = {}
        self._embed = self._new("model.embed_tokens.weight", config.vocab, config.hidden)
        self._layers = [self._new_layer(f"model.layers.{i}.") for i in range(config.layers)]
        self._norm = self._new("model.norm.weight", config.hidden)
        self._head = self._embed if config.tied_head else self._new("lm_head.weight", config.vocab, config.hidden)
        shape = (config.layers, slots, config.kv_heads, context, config.head_size)
        self._keys, self._values = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        self._cos, self._sin = _rotations(config, context, dtype)

    # ------------------------------------------------------------------------------------------- weights

    def _new(self, name: str, *shape: int) -> Tensor:
        self.parameters[name] = torch.zeros(shape, dtype=self.dtype)
        return self.parameters[name]

    def _fused(self, prefix: str, parts: dict[str, int], kind: str, *columns: int) -> Tensor:
        """One tensor for several HF parameters, stacked by rows."""
        whole = torch.zeros((sum(parts.values()), *columns), dtype=self.dtype)
        for name, rows in zip(parts, torch.split(whole, list(parts.values())), strict=True):
            self.parameters[f"{prefix}{name}.{kind}"] = rows
        return whole

    def _new_layer(self, prefix: str) -> _Layer:
        c, attention = self.config, f"{prefix}self_attn."
        queries, pairs = c.heads * c.head_size, c.kv_heads * c.head_size
        qkv, gate_up = {"q_proj": queries, "k_proj": pairs, "v_proj": pairs}, {"gate_proj": c.ffn, "up_proj": c.ffn}
        return _Layer(
            norm=self._new(f"{prefix}input_layernorm.weight", c.hidden),
            qkv=self._fused(attention, qkv, "weight", c.hidden),
            qkv_bias=self._fused(attention, qkv, "bias") if c.qkv_bias else None,
            q_norm=self._new(f"{attention}q_norm.weight", c.head_size) if c.qk_norm else None,
            k_norm=self._new(f"{attention}k_norm.weight", c.head_size) if c.qk_norm else None,
            out=self._new(f"{attention}o_proj.weight", c.hidden, queries),
            out_bias=self._new(f"{attention}o_proj.bias", c.hidden) if c.output_bias else None,
            ffn_norm=self._new(f"{prefix}post_attention_layernorm.weight", c.hidden),
            gate_up=self._fused(f"{prefix}mlp.", gate_up, "weight", c.hidden),
            down=self._new(f"{prefix}mlp.down_proj.weight", c.hidden, c.ffn),
        )

    # ----------------------------------------------------------------------------------------- computing

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Let slot ``target`` begin with the first ``length`` tokens of slot ``source``."""
        for memory in (self._keys, self._values):
            memory[:, target, :, :length] = memory[:, source, :, :length]

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span]) -> Tensor:
        """Compute ``spans`` (of different slots), remember their keys and values → [len(spans), vocab] float32 logits
        for the token after each."""
        eps, hidden = self.config.rms_eps, self.config.hidden
        positions = torch.cat([torch.arange(s.start, s.end) for s in spans])
        x = self._embed[torch.tensor([token for s in spans for token in s.ids])]
        for layer, keys, values in zip(self._layers, self._keys, self._values, strict=True):
            mixed = self._attention(layer, F.rms_norm(x, (hidden,), layer.norm, eps), keys, values, spans, positions)
            x = x + F.linear(mixed, layer.out, layer.out_bias)
            gate, up = F.linear(F.rms_norm(x, (hidden,), layer.ffn_norm, eps), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        last = torch.tensor([len(s.ids) for s in spans]).cumsum(0) - 1
        return F.linear(F.rms_norm(x[last], (hidden,), self._norm, eps), self._head).float()

    def _attention(
        self, layer: _Layer, x: Tensor, keys: Tensor, values: Tensor, spans: Sequence[Span], positions: Tensor
    ) -> Tensor:
        c = self.config
        heads = F.linear(x, layer.qkv, layer.qkv_bias).view(len(x), c.heads + 2 * c.kv_heads, c.head_size)
        q, k, v = torch.split(heads, [c.heads, c.kv_heads, c.kv_heads], 1)
        if layer.q_norm is not None:
            q = F.rms_norm(q, (c.head_size,), layer.q_norm, c.rms_eps)
            k = F.rms_norm(k, (c.head_size,), layer.k_norm, c.rms_eps)
        cos, sin = self._cos[positions], self._sin[positions]
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        slots = torch.tensor([s.slot for s in spans for _ in s.ids])
        keys[slots, :, positions] = k
        values[slots, :, positions] = v
        lengths = [len(s.ids) for s in spans]
        return torch.cat(
            [self._attend(part, keys, values, s) for part, s in zip(torch.split(q, lengths), spans, strict=True)]
        )

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, span: Span) -> Tensor:
        """Queries [n, heads, head_size] of one span → [n, heads * head_size]."""
        c, n = self.config, len(span.ids)
        k, v = keys[None, span.slot, :, : span.end], values[None, span.slot, :, : span.end]
        if n == 1:
            # The heads that share a key become rows of one small product: nothing is copied.
            grouped = q.view(1, c.kv_heads, c.heads // c.kv_heads, c.head_size)
            return F.scaled_dot_product_attention(grouped, k, v).view(1, -1)
        seen = None if span.start == 0 else torch.ones(n, span.end, dtype=torch.bool).tril(span.start)
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None], k, v, attn_mask=seen, is_causal=seen is None, enable_gqa=True
        )
        return out[0].transpose(0, 1).reshape(n, -1)


def _rotations(config: ModelConfig, context: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [context, 1, head_size], in HF's order (two equal halves)."""
    inverse = 1.0 / config.rope_theta ** (torch.arange(0, config.head_size, 2, dtype=torch.float32) / config.head_size)
    angles = torch.outer(torch.arange(context, dtype=torch.float32), inverse).repeat(1, 2)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
