"""The training loop. It runs in the main process, without torch; the ranks do the arithmetic.

An iteration: groups, advantages, micro-batches, update, new weights to the engine, now and then a checkpoint, report.
Engine and ranks take turns: nothing is sampled while weights change, and every rollout of an iteration has one version.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrl.api import TrainingRun, WeightGroup
from agentrl_megatron import checkpoints
from agentrl_megatron.batch import Batch, assemble
from agentrl_megatron.job import Layout
from agentrl_megatron.local import Launch, launch_local
from agentrl_megatron.micro_batches import plan
from agentrl_megatron.publish import join_engine, publish
from agentrl_megatron.ranks import Ranks
from agentrl_megatron.settings import MegatronSettings

_REQUIRED = ("torch", "megatron.core", "mbridge", "einops", "transformers", "safetensors", "numpy")


class MegatronTrainer:
    """GRPO on Megatron-core. ``launch`` places the ranks; by default all of them on this machine."""

    def __init__(self, settings: MegatronSettings, *, launch: Launch = launch_local) -> None:
        self._settings = settings
        self._launch = launch

    def last_checkpoint(self, checkpoint_dir: Path) -> int:
        """The iteration that training would go on with; 0 when there is nothing."""
        return max(checkpoints.iterations(checkpoint_dir), default=0)

    async def probe(self) -> str | None:
        """None if the packages are here."""
        missing = [name for name in _REQUIRED if not _installed(name)]
        return f"missing: {', '.join(missing)}; pip install 'agentrl[megatron]'" if missing else None

    async def train(self, run: TrainingRun) -> None:
        """Run all iterations; ends its processes in any case. Raises: TrainerError."""
        layout = Layout(self._settings.tp, self._settings.pp, self._settings.dp)
        spec = run.spec
        checkpoint = checkpoints.find(spec.checkpoint_dir, spec.first_iteration, layout)
        run.progress("start", f"{layout.world} trainer rank{'s' * (layout.world > 1)}")
        ranks = await Ranks.start(spec, self._settings, checkpoint, launch=self._launch)
        try:
            await _Loop(run, self._settings, layout, ranks).iterations()
        finally:
            await ranks.aclose()


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class _Loop:
    """One run of the loop over running ranks."""

    def __init__(self, run: TrainingRun, settings: MegatronSettings, layout: Layout, ranks: Ranks) -> None:
        self._run, self._settings, self._layout, self._ranks = run, settings, layout, ranks
        self._seconds: dict[str, float] = {}

    async def iterations(self) -> None:
        """All of them. The first weights are published before any rollout: an engine that runs already may hold others."""
        spec = self._run.spec
        iteration = spec.first_iteration
        group = await join_engine(self._ranks, self._run.engine, self._settings)
        await self._publish(group, iteration)
        while not spec.iterations or iteration < spec.iterations:
            await self._iteration(group, iteration)
            iteration += 1
        await self._export()

    async def _iteration(self, group: WeightGroup, iteration: int) -> None:
        groups = await self._run.groups(iteration)
        # In a thread, as everything that touches every token: the event loop has others to serve.
        batch = await asyncio.to_thread(assemble, groups, advantage_std=self._settings.advantage_std)
        metrics = dict(batch.metrics)
        if batch.rows:
            metrics |= await self._update(batch)
        await self._publish(group, iteration + 1)
        # Before the checkpoint: a run that is killed in between repeats the update, and reports it neither twice nor never.
        seconds, self._seconds = self._seconds, {}
        await self._run.report(iteration, metrics, seconds)
        every = self._run.spec.checkpoint_every
        if every and ((iteration + 1) % every == 0 or iteration + 1 == self._run.spec.iterations):
            await self._checkpoint(iteration + 1)

    async def _update(self, batch: Batch) -> dict[str, float]:
        self._run.progress("train", f"{len(batch.rows)} samples")
        settings, layout = self._settings, self._layout
        share = settings.share_prefixes and self._ranks.branches
        shape = {"budget": settings.micro_batch_tokens, "dp": layout.dp, "uniform": layout.pp > 1, "share": share}
        with self._phase("train"):
            parts = await asyncio.to_thread(plan, batch.rows, **shape)
            updates = await self._ranks.train(parts)
        return summarize(updates)

    async def _publish(self, group: WeightGroup, version: int) -> None:
        self._run.progress("publish", f"version {version}")
        with self._phase("publish"):
            await publish(self._ranks, self._run.engine, group, str(version))

    async def _checkpoint(self, iteration: int) -> None:
        self._run.progress("checkpoint", f"after {iteration} iterations")
        root = self._run.spec.checkpoint_dir
        target = checkpoints.path(root, iteration)
        with self._phase("checkpoint"):
            folder = checkpoints.begin(root, target.name)
            await self._ranks.all("save", folder=str(folder), iteration=iteration)
            checkpoints.describe(folder, iteration, self._layout)
            checkpoints.finish(folder, target)
            checkpoints.prune(root, self._settings.checkpoints_kept)

    async def _export(self) -> None:
        """The final weights as an HF folder, ready to be served."""
        root = self._run.spec.checkpoint_dir
        self._run.progress("export", str(root / "hf"))
        folder = checkpoints.begin(root, "hf")
        await self._ranks.all("export", folder=str(folder))
        checkpoints.finish(folder, root / "hf")

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self._seconds[name] = time.monotonic() - begun


def summarize(updates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of an update from the sums of its data-parallel ranks.

    ``logprob_abs_diff``: mean over trained tokens of |trainer's logprob before the update - engine's logprob|.
    ``clip_fraction``: over the trained tokens of all epochs.
    """
    total = {name: sum(update[name] for update in updates) for name in ("loss", "diff_sum", "clipped", "capped")}
    tokens, visited = (sum(update[name] for update in updates) for name in ("tokens", "visited"))
    return {
        "loss": total["loss"],
        "grad_norm": updates[0]["grad_norm"],
        "learning_rate": updates[0]["learning_rate"],
        "logprob_abs_diff": total["diff_sum"] / tokens,
        "logprob_abs_diff_max": max(update["diff_max"] for update in updates),
        "clip_fraction": total["clipped"] / visited,
        "tis_capped_fraction": total["capped"] / visited,
    }
