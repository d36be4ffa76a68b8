"""Rotary positions of lines: Megatron counts columns, but a branch goes on where the trunk ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(slots=True)
class Positions:
    """A hook behind Megatron's rotary embedding. ``columns`` [rows, length]: the position of each column in the next pass."""

    columns: Tensor | None = None

    def attach(self, model: Any) -> None:
        """Install the hook."""
        model.rotary_pos_emb.register_forward_hook(self._choose)

    def _choose(self, _module: Any, _args: Any, angles: Tensor) -> Tensor:
        """[length, 1, 1, channels] to [length, rows, 1, channels]; no position exceeds its column."""
        return angles if self.columns is None else angles[:, 0][self.columns.T]
