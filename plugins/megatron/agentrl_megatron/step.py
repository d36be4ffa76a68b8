"""The update on one rank: forward, loss, backward over its micro-batches, and the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor

from agentrl_megatron.attention import line_mask
from agentrl_megatron.loss import LossLimits, policy_loss
from agentrl_megatron.model import Learner, megatron


@dataclass(frozen=True, slots=True)
class Tensors:
    """A micro-batch on the device; see :class:`agentrl_megatron.micro_batches.MicroBatch` for the shapes."""

    tokens: Tensor
    positions: Tensor
    branches: Tensor
    rows: Tensor
    columns: Tensor
    labels: Tensor
    logprobs: Tensor
    weights: Tensor
    advantages: Tensor


@dataclass(slots=True)
class Update:
    """Sums over this rank's tokens, to be added up over the data-parallel ranks. ``seen``: this rank has the logits.
    ``tokens``: trained tokens; ``visited``: the same counted once an epoch; ``loss``: mean over epochs."""

    seen: bool
    loss: float = 0.0
    diff_sum: float = 0.0
    diff_max: float = 0.0
    tokens: int = 0
    visited: int = 0
    clipped: int = 0
    capped: int = 0
    grad_norm: float = 0.0
    learning_rate: float = 0.0


@dataclass(slots=True)
class _Pass:
    """One pass over the micro-batches. ``old`` keeps the logprobs of the first pass, before any update."""

    learner: Learner
    limits: LossLimits
    scale: float
    update: Update
    old: dict[int, Tensor] = field(default_factory=dict)

    def forward(self, batches: Iterator[tuple[int, Tensors]], model: Any) -> tuple[Tensor, Any]:
        """Megatron's forward_step_func: the model's output, and how the last stage turns it into a loss."""
        index, batch = next(batches)
        self.learner.head.rows, self.learner.head.columns = batch.rows, batch.columns
        self.learner.positions.columns = batch.positions
        output = model(
            input_ids=batch.tokens,
            position_ids=batch.positions,
            attention_mask=line_mask(batch.branches),
            # With labels the model answers negative logprobs, also when the vocabulary is split; [1, trained].
            labels=batch.labels[None],
        )
        return output, partial(self.loss, index, batch)

    def loss(self, index: int, batch: Tensors, negative: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The micro-batch's share of the loss, scaled against Megatron's averaging over micro-batches and ranks."""
        logprobs = -negative[0].float()
        first = index not in self.old
        old = self.old.setdefault(index, logprobs.detach())
        result = policy_loss(logprobs, old, batch.logprobs, batch.advantages, batch.weights, self.limits)
        self._count(result.loss, result.clipped, result.capped)
        self.update.visited += int((batch.weights > 0).sum().item())
        if first:
            self._compare(old, batch)
        return result.loss * self.scale, {}

    def _count(self, loss: Tensor, clipped: Tensor, capped: Tensor) -> None:
        self.update.loss += loss.item()
        self.update.clipped += int(clipped.item())
        self.update.capped += int(capped.item())

    def _compare(self, old: Tensor, batch: Tensors) -> None:
        difference = (old - batch.logprobs).abs()[batch.weights > 0]
        if len(difference):
            self.update.tokens += len(difference)
            self.update.diff_sum += difference.sum().item()
            self.update.diff_max = max(self.update.diff_max, difference.max().item())


def train(learner: Learner, batches: Sequence[Tensors], limits: LossLimits, epochs: int) -> Update:
    """``epochs`` optimizer steps on ``batches``; collective. Raises: FloatingPointError when the gradient is not finite."""
    scale = float(len(batches) * parallel_state.get_data_parallel_world_size())
    seen = parallel_state.is_pipeline_last_stage() and parallel_state.get_tensor_model_parallel_rank() == 0
    update = Update(seen)
    run = _Pass(learner, limits, scale, update)
    for _ in range(epochs):
        update.grad_norm = _step(learner, run, batches)
    update.loss /= epochs
    update.learning_rate = float(learner.optimizer.param_groups[0]["lr"])
    return update


def _step(learner: Learner, run: _Pass, batches: Sequence[Tensors]) -> float:
    rows, width = batches[0].tokens.shape
    learner.ddp.zero_grad_buffer()
    learner.optimizer.zero_grad()
    with megatron(learner.device):
        get_forward_backward_func()(
            forward_step_func=run.forward,
            data_iterator=iter(enumerate(batches)),
            model=[learner.ddp],
            num_microbatches=len(batches),
            seq_length=width,
            micro_batch_size=rows,
            forward_only=False,
        )
        _, norm, _ = learner.optimizer.step()
    if not math.isfinite(norm):
        raise FloatingPointError(
            f"the gradient's norm is {norm}: lower AGENTRL_LEARNING_RATE, or look at the last samples"
        )
    return float(norm)
