"""Checkpoints on disk: which there are, and how one comes into being. What a shard holds is the ranks' affair.

``iter_000005`` holds the state after five iterations, so training goes on with iteration 5. It is written under another
name and renamed when complete: what has the name is whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from agentrl.api import TrainerError
from agentrl_megatron.job import Layout

_NAME = re.compile(r"iter_(\d{6,})")
_META = "meta.json"


def path(root: Path, iteration: int) -> Path:
    """Where the checkpoint after ``iteration`` iterations lies."""
    return root / f"iter_{iteration:06d}"


def iterations(root: Path) -> list[int]:
    """The complete checkpoints, oldest first."""
    names = [_NAME.fullmatch(entry.name) for entry in root.iterdir()] if root.is_dir() else []
    return sorted(int(name[1]) for name in names if name)


def find(root: Path, iteration: int, layout: Layout) -> Path | None:
    """The checkpoint to start ``iteration`` from; None for iteration 0.

    Raises: TrainerError when it is missing, was written by another layout of ranks, or when later ones lie beside it.
    """
    later = [number for number in iterations(root) if number > iteration]
    if later:
        raise TrainerError(
            f"{root} holds a checkpoint of iteration {later[-1]}: go on from it, or choose an empty folder"
        )
    if iteration == 0:
        return None
    found = path(root, iteration)
    if not found.is_dir():
        raise TrainerError(f"there is no checkpoint of iteration {iteration} in {root}; start anew in an empty folder")
    meta = json.loads((found / _META).read_text())
    if meta["layout"] != _layout(layout):
        raise TrainerError(f"{found} was written with {meta['layout']}; set AGENTRL_TP, AGENTRL_PP to the same values")
    return found


def begin(root: Path, name: str) -> Path:
    """An empty folder to write ``name`` into; what a run that died there left is removed."""
    folder = root / f".{name}.partial"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def finish(folder: Path, target: Path) -> None:
    """Give a complete folder its name, replacing what had it."""
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def describe(folder: Path, iteration: int, layout: Layout) -> None:
    """Write what must be known before the shards are read."""
    (folder / _META).write_text(json.dumps({"iteration": iteration, "layout": _layout(layout)}))


def prune(root: Path, keep: int) -> None:
    """Delete all but the newest ``keep`` checkpoints."""
    for number in iterations(root)[:-keep]:
        shutil.rmtree(path(root, number))


def _layout(layout: Layout) -> dict[str, int]:
    """Data-parallel ranks are replicas: their number may change between runs."""
    return {"tp": layout.tp, "pp": layout.pp}
