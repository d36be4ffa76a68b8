"""New weights for a model: from an HF folder, or by broadcast from a trainer.

Nothing is written before everything has arrived, so a failed update leaves the old weights in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

_IGNORED = ("rotary_emb.inv_freq",)


class WeightError(Exception):
    """The update cannot be done; the old weights are still served."""


def load_folder(parameters: Mapping[str, Tensor], model_dir: Path, *, tied_head: bool) -> None:
    """Read the safetensors of ``model_dir`` into ``parameters``. Raises: WeightError."""
    try:
        _write(parameters, list(_read(model_dir)), tied_head=tied_head, complete=True)
    except OSError as error:
        raise WeightError(f"cannot read the weights in {model_dir}: {error}") from error


def _read(model_dir: Path) -> Iterator[tuple[str, Tensor]]:
    index = model_dir / "model.safetensors.index.json"
    shards = json.loads(index.read_text())["weight_map"].values() if index.exists() else ["model.safetensors"]
    for name in sorted(set(shards)):
        with safe_open(model_dir / name, "pt") as file:
            for key in file.keys():  # noqa: SIM118 (not a mapping)
                yield key, file.get_tensor(key)


def _write(
    parameters: Mapping[str, Tensor], tensors: Iterable[tuple[str, Tensor]], *, tied_head: bool, complete: bool
) -> None:
    tensors = [(name, tensor) for name, tensor in tensors if not _redundant(name, tied_head=tied_head)]
    _check(parameters, [(name, tuple(tensor.shape)) for name, tensor in tensors])
    if complete and (missing := parameters.keys() - {name for name, _ in tensors}):
        raise WeightError(f"{len(missing)} tensors are missing, the first is {min(missing)}")
    for name, tensor in tensors:
        parameters[name].copy_(tensor)


def _redundant(name: str, *, tied_head: bool) -> bool:
    return name.endswith(_IGNORED) or (tied_head and name == "lm_head.weight")


def _check(parameters: Mapping[str, Tensor], wanted: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    for name, shape in wanted:
        if name not in parameters:
            raise WeightError(f"this model has no weight called {name}")
        if tuple(parameters[name].shape) != shape:
            raise WeightError(f"{name} has the shape {list(parameters[name].shape)} here, not {list(shape)}")


class WeightGroups:
    """The process groups over which trainers send; they are rank 0 of each."""

    def __init__(self) -> None:
        self._groups: dict[str, dist.ProcessGroup] = {}

    def join(self, name: str, *, address: str, port: int, rank: int, world_size: int, backend: str) -> None:
        """Join; returns when all ranks are there. Raises: WeightError."""
        if name in self._groups:
            raise WeightError(f"the weight group {name} exists already; destroy it first")
        if backend != "gloo":
            raise WeightError(f"the local engine speaks gloo, not {backend}")
        try:
            self._groups[name] = _custom_group(name, f"tcp://{address}:{port}", rank, world_size)
        except (RuntimeError, ValueError) as error:
            raise WeightError(f"cannot join the weight group {name}: {error}") from error

    def leave(self, name: str) -> None:
        """Forget a group. Raises: WeightError."""
        group = self._groups.pop(name, None)
        if group is None:
            raise WeightError(f"there is no weight group {name}")
        dist.destroy_process_group(group)

    def receive(
        self,
        name: str,
        parameters: Mapping[str, Tensor],
        wanted: Sequence[tuple[str, str, tuple[int, ...]]],
        *,
        tied_head: bool,
    ) -> None:
        """Take the broadcast of ``wanted`` (name, dtype, shape), in this order. Raises: WeightError."""
        group = self._groups.get(name)
        if group is None:
            raise WeightError(f"there is no weight group {name}; initialise it first")
        _check(parameters, [(n, shape) for n, _, shape in wanted if not _redundant(n, tied_head=tied_head)])
        received = [(n, torch.empty(shape, dtype=_dtype(kind))) for n, kind, shape in wanted]
        try:
            for _, tensor in received:
                dist.broadcast(tensor, src=0, group=group)
        except RuntimeError as error:
            raise WeightError(f"the broadcast broke: {error}") from error
        _write(parameters, received, tied_head=tied_head, complete=False)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise WeightError(f"unknown dtype {name!r}")
    return found


def _custom_group(name: str, url: str, rank: int, world_size: int) -> dist.ProcessGroup:
    """A process group beside the default one, met at ``url``; wire-compatible with SGLang's ``init_custom_process_group``."""
    timeout = c10d.default_pg_timeout
    store, rank, world_size = next(rendezvous(url, rank, world_size, timeout=timeout))
    store.set_timeout(timeout)
    made: tuple[dist.ProcessGroup, Any] = c10d._new_process_group_helper(
        world_size,
        rank,
        [],
        c10d.Backend("gloo"),
        c10d.PrefixStore(name, store),
        group_name=cast("Any", name),
        timeout=timeout,
    )
    group = made[0]
    c10d._world.pg_group_ranks[group] = {i: i for i in range(world_size)}
    return group
