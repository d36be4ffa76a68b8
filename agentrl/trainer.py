"""Trainers: the outer loop. A trainer asks for groups, gets samples, updates, publishes weights.

It never names a sandbox, a harness or a grader, and cannot: nothing in :class:`TrainingRun` leads to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentrl.engine import Engine
from agentrl.types import Group


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """What is trained. ``first_iteration`` > 0 when a run goes on; ``iterations`` is the total, 0 means until stopped.

    ``model_dir`` is an HF folder (config, safetensors, tokenizer); ``checkpoint_dir`` is the trainer's own. ``dtype``:
    ``float32``, ``bfloat16`` or ``auto``. ``checkpoint_every``: iterations, 0 for never. ``log_dir``: where subprocesses
    write. ``temperature``: of the rollouts' sampling; their logprobs are of the distribution at that temperature.
    """

    model_dir: Path
    checkpoint_dir: Path
    log_dir: Path
    dtype: str
    seed: int
    first_iteration: int
    iterations: int
    checkpoint_every: int
    context_tokens: int
    temperature: float = 1.0


class TrainingRun(Protocol):
    """What the core offers a trainer for the length of a run."""

    @property
    def spec(self) -> TrainSpec:
        """What is trained."""
        ...

    @property
    def engine(self) -> Engine:
        """Where weights are published."""
        ...

    async def groups(self, iteration: int) -> Sequence[Group]:
        """The finished groups of this iteration, rolled out under the weights published last.

        On a resumed run, rollouts that the journal already holds are not made again. Raises: TrainerError when too
        many rollouts aborted.
        """
        ...

    async def report(self, iteration: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """Ends an iteration: numbers of the update (``logprob_abs_diff``, ``grad_norm``, ``loss``, ``samples_trained``...)
        and the seconds of each phase. What was not measured is absent."""
        ...

    def progress(self, phase: str, detail: str = "") -> None:
        """Tell the person who watches what is going on (``train``, ``publish``, ``checkpoint``)."""
        ...


class Trainer(Protocol):
    """A training loop."""

    async def train(self, run: TrainingRun) -> None:
        """Run all iterations. On cancellation: stop its processes and return soon. Raises: TrainerError."""
        ...

    def last_checkpoint(self, checkpoint_dir: Path) -> int:
        """The iteration that training would go on with from what lies in ``checkpoint_dir``; 0 when there is nothing."""
        ...

    async def probe(self) -> str | None:
        """None if it can train here; otherwise what is missing and the command that adds it."""
        ...
