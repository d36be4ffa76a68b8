"""What a rank is told when it starts; plain data that travels as JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """How the ranks share the model and the data; ``world`` of them in all."""

    tp: int
    pp: int
    dp: int

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True)
class RankJob:
    """One rank's part. ``model_dir``: HF folder. ``dtype``: ``float32``, ``bfloat16`` or ``auto``.

    ``rendezvous``: address that rank 0 listens on. ``checkpoint``: folder of the shards to go on from, or empty.
    """

    rank: int
    tp: int
    pp: int
    dp: int
    rendezvous: str
    model_dir: str
    checkpoint: str
    dtype: str
    seed: int
    temperature: float
    learning_rate: float
    adam_beta1: float
    adam_beta2: float
    weight_decay: float
    clip_grad: float
    clip_low: float
    clip_high: float
    tis_cap: float
    epochs: int
    timeout_sec: float

    @property
    def layout(self) -> Layout:
        """How all ranks are laid out."""
        return Layout(self.tp, self.pp, self.dp)
