"""The output layer, made to work only where it matters: most tokens of an agent's samples are read, not sampled.

Logits cost memory and time in proportion to the vocabulary, so they are computed for trained positions alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(slots=True)
class Head:
    """Hooks around a Megatron output layer. ``rows`` and ``columns`` choose positions of the next forward pass."""

    temperature: float
    rows: Tensor | None = None
    columns: Tensor | None = None

    def attach(self, model: Any) -> None:
        """Install the hooks; pipeline stages without an output layer stay as they are."""
        if model.post_process:
            model.output_layer.register_forward_pre_hook(self._select)
            model.output_layer.register_forward_hook(self._scale)

    def _select(self, _layer: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """[length, rows, hidden] to [chosen, 1, hidden]."""
        return (args[0][self.columns, self.rows].unsqueeze(1), *args[1:])

    def _scale(self, _layer: Any, _args: Any, output: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
        """Logits of the distribution that was sampled from."""
        return output if self.temperature == 1.0 else (output[0].float() / self.temperature, output[1])
