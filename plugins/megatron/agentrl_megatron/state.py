"""A rank's shard of a checkpoint: parameters, optimizer and random state. The driver owns folders and their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state

from agentrl_megatron.model import Learner, megatron


def save(learner: Learner, folder: Path, iteration: int) -> None:
    """Write this rank's shard; of data-parallel replicas only the first does."""
    if parallel_state.get_data_parallel_rank():
        return
    state = {
        "iteration": iteration,
        "model": _tensors(learner.model.state_dict()),
        "optimizer": learner.optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    with (folder / _name()).open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def load(learner: Learner, folder: Path) -> int:
    """Go on from this rank's shard; the iteration it was written after.

    Raises: FileNotFoundError without the shard; ValueError for a shard of another model; pickle.UnpicklingError for
    anything but tensors and plain data.
    """
    state = torch.load(folder / _name(), map_location=learner.device, weights_only=True)
    missing, unexpected = learner.model.load_state_dict(state["model"], strict=False)
    if unexpected or any("_extra_state" not in name for name in missing):
        raise ValueError(f"the checkpoint is of another model: it lacks {missing}, and holds {unexpected}")
    with megatron(learner.device):
        learner.optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"].cpu())
    return int(state["iteration"])


def _name() -> str:
    return (
        f"tp{parallel_state.get_tensor_model_parallel_rank():02d}"
        f"_pp{parallel_state.get_pipeline_model_parallel_rank():02d}.pt"
    )


def _tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Without Megatron's extra state, which belongs to low-precision kernels and is not plain data."""
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
