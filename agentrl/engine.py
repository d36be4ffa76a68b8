"""Engines: what samples tokens. SGLang's native HTTP protocol is the only one that core knows.

:class:`Engine` is the client's side, :class:`EngineLauncher` is what a plugin offers when an engine can be started here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentrl.types import Generation, SamplingParams


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor on its way to the engine: HF name, dtype such as ``float32``, shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """The process group over which weights are broadcast: the trainer is rank 0, the engine's ranks follow from 1.

    ``address``:``port`` is the rendezvous that rank 0 opens. ``backend``: ``gloo`` or ``nccl``. ``world_size`` counts both sides.
    """

    name: str
    address: str
    port: int
    world_size: int
    backend: str


class Engine(Protocol):
    """A running engine. Methods raise EngineUnavailable when it cannot be reached, EngineError when it breaks its protocol."""

    async def generate(
        self, ids: Sequence[int], params: SamplingParams, request_id: str, *, routing_key: str = ""
    ) -> Generation:
        """Sample a continuation of ``ids`` with exact logprobs. Cancelling the caller aborts the request.

        Raises: ContextOverflow, EngineUnavailable, EngineError (no logprobs, counts that differ).
        """
        ...

    async def abort(self, request_id: str) -> None:
        """Stop a generation that nobody waits for; unknown ids are fine."""
        ...

    async def health(self) -> None:
        """Returns when the engine can serve. Raises: EngineUnavailable."""
        ...

    async def weight_version(self) -> str:
        """The version of the weights that the next generation uses."""
        ...

    async def pause(self) -> None:
        """Hold generation (requests wait)."""
        ...

    async def resume(self) -> None:
        """Undo :meth:`pause`."""
        ...

    async def join_weight_group(self, group: WeightGroup) -> None:
        """Make the engine join; returns when the group is complete, so rank 0 must join at the same time."""
        ...

    async def update_weights(self, tensors: Sequence[TensorSpec], group: WeightGroup, version: str) -> None:
        """Receive ``tensors`` by broadcast from rank 0 in this order and serve them as ``version``; caches are flushed.

        Rank 0 must broadcast at the same time. Raises: EngineError when the engine refuses.
        """
        ...

    async def update_weights_from_disk(self, model_dir: Path, version: str) -> None:
        """Load ``model_dir`` and serve it as ``version``; caches are flushed."""
        ...


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What to start. ``dtype``: ``float32``, ``bfloat16`` or ``auto``. ``log_path`` receives the engine's output."""

    model_dir: Path
    context_tokens: int
    dtype: str
    seed: int
    log_path: Path


class RunningEngine(Protocol):
    """An engine that we started."""

    @property
    def url(self) -> str:
        """Root of its HTTP service."""
        ...

    async def aclose(self) -> None:
        """Stop it and everything that it started; idempotent."""
        ...


class EngineLauncher(Protocol):
    """A plugin's way to start an engine."""

    async def start(self, spec: EngineSpec) -> RunningEngine:
        """Start and wait until it serves. It dies with this process, however this process dies. Raises: EngineError with the log's tail."""
        ...

    async def probe(self) -> str | None:
        """None if it can start here; otherwise what is missing and the command that adds it."""
        ...
