"""Core attention of the local Megatron layers by PyTorch's fused kernel, with grouped queries.

Megatron's own local attention materialises the scores: twice as slow on CPUs, and the memory is quadratic.
Batches are padded on the right, so the causal mask alone is right and no padding mask is needed.
"""

from __future__ import annotations

from typing import Any

from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class CausalAttention(MegatronModule):  # type: ignore[misc]
    """Drop-in for Megatron's ``DotProductAttention``: causal, no dropout, no packed sequences."""

    def __init__(
        self, config: Any, layer_number: int, attn_mask_type: AttnMaskType, attention_type: str, **options: Any
    ) -> None:
        super().__init__(config=config)
        if attn_mask_type != AttnMaskType.causal or config.attention_dropout:
            raise ValueError("this attention is causal and has no dropout")
        self._scale = options.get("softmax_scale")

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> Tensor:
        """[length, rows, heads, channels] each (fewer heads in keys and values) to [length, rows, heads * channels]."""
        if attention_mask is not None or options.get("packed_seq_params") is not None:
            raise ValueError("only the causal mask, on padded rows, is supported")
        q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
        grouped = q.shape[1] != k.shape[1]
        out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=self._scale, enable_gqa=grouped)
        return out.permute(2, 0, 1, 3).flatten(2)
