"""Core attention of the local Megatron layers by PyTorch's fused kernel, with grouped queries.

Megatron's own local attention materialises the scores: twice as slow on CPUs, and the memory is quadratic.
Lines are padded on the right, so without branches the causal mask alone is right and no padding mask is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def line_mask(branches: Tensor) -> Tensor | None:
    """Who may not see whom, [rows, 1, length, length]: a token sees what stands before it in the trunk (branch 0) and in
    its own branch. None where there is nothing but trunk: plain causal attention, which has a faster kernel."""
    if not branches.any():
        return None
    length = branches.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=branches.device).tril()
    seen = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    return ~(seen & before)[:, None]


class LineAttention(MegatronModule):  # type: ignore[misc]
    """Drop-in for Megatron's ``DotProductAttention``: causal or with a line mask, no dropout, no packed sequences."""

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
        """[length, rows, heads, channels] each (fewer heads in keys and values) to [length, rows, heads * channels].

        ``attention_mask``: as :func:`line_mask` makes it; it includes causality.
        """
        if options.get("packed_seq_params") is not None:
            raise ValueError("packed sequences are not supported")
        q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
        out = scaled_dot_product_attention(
            *(q, k, v),
            attn_mask=None if attention_mask is None else ~attention_mask,
            is_causal=attention_mask is None,
            scale=self._scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return out.permute(2, 0, 1, 3).flatten(2)
