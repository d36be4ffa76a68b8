"""Weights on their way out of a rank: to the engine by broadcast, to disk as an HF folder. All of it is collective."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d

from agentrl_megatron.model import Learner
from agentrl_megatron.store import listen

SHARD_BYTES = 4 << 30


def export(learner: Learner) -> Iterator[tuple[str, Tensor]]:
    """Every weight under its HF name, whole, always in the same order; a tied output layer is not one of them."""
    seen: set[str] = set()
    for name, tensor in learner.bridge.export_weights([learner.model]):
        if name not in seen:
            seen.add(name)
            yield name, tensor.detach()


def describe(learner: Learner) -> list[list[Any]]:
    """``[name, dtype, shape]`` of each exported weight, in order."""
    return [[name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in export(learner)]


class Channel:
    """The group in which rank 0 of the trainer broadcasts and the engine's ranks listen."""

    def __init__(self, host: str, world_size: int, name: str, backend: str, timeout_sec: float) -> None:
        self._timeout = timedelta(seconds=timeout_sec)
        self._store, self.port = listen(host, world_size, self._timeout)
        self._name, self._backend, self._world_size = name, backend, world_size
        self._group: Any = None

    def join(self) -> None:
        """Returns when all others are there.

        A second, independent group beside the trainer's own: torch makes such groups only through this internal
        function, which is also what engines call on their side.
        """
        self._group, _ = distributed_c10d._new_process_group_helper(
            self._world_size,
            0,
            [],
            dist.Backend(self._backend),
            PrefixStore(self._name, self._store),
            group_name=distributed_c10d.GroupName(self._name),
            timeout=self._timeout,
        )
        distributed_c10d._world.pg_group_ranks[self._group] = {rank: rank for rank in range(self._world_size)}

    def broadcast(self, tensor: Tensor) -> None:
        """Send one tensor to all others."""
        dist.broadcast(tensor.contiguous(), src=0, group=self._group)


def broadcast(learner: Learner, channel: Channel | None) -> int:
    """Export, and send through ``channel`` on the rank that has one; the number of weights."""
    count = 0
    for _, tensor in export(learner):
        if channel:
            channel.broadcast(tensor)
        count += 1
    return count


def save_hf(learner: Learner, model_dir: Path, folder: Path) -> None:
    """Write an HF folder: the weights as safetensors by rank 0, everything else as in ``model_dir``."""
    from safetensors.torch import save_file

    shard: dict[str, Tensor] = {}
    files: dict[str, str] = {}
    shards = 0
    for name, tensor in export(learner):
        if dist.get_rank() == 0:
            shard[name] = tensor.cpu().contiguous().clone()
            if sum(t.nbytes for t in shard.values()) > SHARD_BYTES:
                shards += 1
                _save_shard(shard, folder, shards, files)
    if dist.get_rank() != 0:
        return
    if shards:
        _save_shard(shard, folder, shards + 1, files)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    else:
        save_file(shard, folder / "model.safetensors", {"format": "pt"})
    _copy_rest(model_dir, folder)


def _save_shard(shard: dict[str, Tensor], folder: Path, number: int, files: dict[str, str]) -> None:
    from safetensors.torch import save_file

    if shard:
        name = f"model-{number:05d}.safetensors"
        save_file(shard, folder / name, {"format": "pt"})
        files.update(dict.fromkeys(shard, name))
        shard.clear()


def _copy_rest(model_dir: Path, folder: Path) -> None:
    for path in model_dir.iterdir():
        weights = path.name.endswith((".safetensors", ".bin", ".gguf", ".index.json"))
        if path.is_file() and not weights:
            shutil.copyfile(path, folder / path.name)


def synchronize(device: torch.device) -> None:
    """Wait for the device: what was sent has left, what was measured is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
