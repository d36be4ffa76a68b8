"""All ranks of the trainer as the driver sees them: started together, commanded together, stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from agentrl.api import TensorSpec, TrainerError, TrainSpec
from agentrl_megatron.fit import check_model
from agentrl_megatron.job import Layout, RankJob
from agentrl_megatron.local import Launch, Link, launch_local
from agentrl_megatron.micro_batches import MicroBatch
from agentrl_megatron.settings import MegatronSettings
from agentrl_megatron.wire import Array, Message

_FROM_SETTINGS = tuple(field.name for field in fields(RankJob) if field.name in MegatronSettings.model_fields)


class Ranks:
    """Running ranks. ``branches``: their attention can follow lines with branches.

    Any method raises TrainerError, with the end of the log, when a rank fails or is gone."""

    def __init__(self, links: Sequence[Link], ready: Sequence[Mapping[str, Any]]) -> None:
        self._links = links
        self._dp_ranks = [int(reply["dp_rank"]) for reply in ready]
        self.backend: str = ready[0]["backend"]
        self.branches = all(reply["branches"] for reply in ready)
        self.weights = [TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in ready[0]["weights"]]

    @classmethod
    async def start(
        cls, spec: TrainSpec, settings: MegatronSettings, checkpoint: Path | None, *, launch: Launch = launch_local
    ) -> Ranks:
        """Start them, load the model, and the checkpoint if there is one."""
        layout = Layout(settings.tp, settings.pp, settings.dp)
        check_model(spec.model_dir, layout)
        links: list[Link] = []
        try:
            for rank in range(layout.world):
                links.append(await launch(rank, layout.world, settings, spec.log_dir))
            rendezvous = await _rendezvous(links[0], layout, settings)
            jobs = [_job(rank, rendezvous, spec, settings, checkpoint) for rank in range(layout.world)]
            ready = await _all(_ask(links[job["rank"]], job["rank"], Message("start", job)) for job in jobs)
        except BaseException:
            await _stop(links)
            raise
        return cls(links, ready)

    async def aclose(self) -> None:
        """Stop them all; idempotent."""
        await _stop(self._links)

    async def train(self, batches: Sequence[Sequence[MicroBatch]]) -> list[Mapping[str, Any]]:
        """One update; ``batches`` by data-parallel rank. The replies of the ranks that saw logits."""
        messages = [_train_message(part) for part in batches]
        replies = await self._command([messages[dp] for dp in self._dp_ranks])
        return [reply for reply in replies if reply["seen"]]

    async def first(self, op: str, **arguments: Any) -> Mapping[str, Any]:
        """Command rank 0 alone; its reply."""
        return await _ask(self._links[0], 0, Message(op, arguments))

    async def all(self, op: str, **arguments: Any) -> list[Mapping[str, Any]]:
        """Command all ranks alike; their replies."""
        return await self._command([Message(op, arguments)] * len(self._links))

    async def _command(self, messages: Sequence[Message]) -> list[Mapping[str, Any]]:
        return await _all(_ask(self._links[rank], rank, message) for rank, message in enumerate(messages))


def _train_message(part: Sequence[MicroBatch]) -> Message:
    arrays: dict[str, Array] = {}
    for i, batch in enumerate(part):
        arrays |= {f"{i}.{part.name}": getattr(batch, part.name) for part in fields(MicroBatch)}
    return Message("train", {"micro_batches": len(part)}, arrays)


async def _rendezvous(first: Link, layout: Layout, settings: MegatronSettings) -> str:
    place = {"host": settings.host, "world_size": layout.world, "timeout_sec": settings.timeout_sec}
    reply = await _ask(first, 0, Message("store", place))
    return f"{settings.host}:{reply['port']}"


def _job(
    rank: int, rendezvous: str, spec: TrainSpec, settings: MegatronSettings, checkpoint: Path | None
) -> dict[str, Any]:
    job = RankJob(
        rank=rank,
        rendezvous=rendezvous,
        model_dir=str(spec.model_dir),
        checkpoint=str(checkpoint or ""),
        dtype=spec.dtype,
        seed=spec.seed,
        temperature=spec.temperature,
        **{name: getattr(settings, name) for name in _FROM_SETTINGS},
    )
    return asdict(job)


async def _ask(link: Link, rank: int, message: Message) -> Mapping[str, Any]:
    try:
        await link.send(message)
        reply = await link.receive()
    except (EOFError, ConnectionError) as error:
        raise TrainerError(f"trainer rank {rank} died during {message.op!r}:\n{link.log_tail()}") from error
    if reply.op != "ok":
        raise TrainerError(f"trainer rank {rank} failed in {message.op!r}: {reply.fields['error']}\n{link.log_tail()}")
    return reply.fields


async def _all(asks: Iterable[Coroutine[Any, Any, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """All replies, or the first failure: then the others may wait for the failed rank for ever, and are given up."""
    tasks = [asyncio.ensure_future(ask) for ask in asks]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stop(links: Sequence[Link]) -> None:
    await asyncio.shield(asyncio.gather(*(link.stop() for link in links)))
