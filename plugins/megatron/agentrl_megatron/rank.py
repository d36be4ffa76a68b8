"""One rank of the trainer, a process of its own: ``python -m agentrl_megatron.rank FD``.

It obeys the driver, which it hears on the inherited socket ``FD``, one command at a time, and ends when the driver is gone.
Every command but ``store``, ``open`` and ``join`` goes to all ranks and is collective.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel

from agentrl_megatron import cpu, state, weights
from agentrl_megatron.job import RankJob
from agentrl_megatron.loss import LossLimits
from agentrl_megatron.model import Learner, build, local_layers
from agentrl_megatron.step import Tensors, train
from agentrl_megatron.store import connect, listen
from agentrl_megatron.wire import Message, encode, receive_blocking


@dataclass(slots=True)
class Rank:
    """The state between commands."""

    store: Any = None
    job: RankJob | None = None
    learner: Learner | None = None
    channel: weights.Channel | None = None

    def started(self) -> tuple[RankJob, Learner]:
        """The job and the learner. Raises: RuntimeError before ``start``."""
        if self.job is None or self.learner is None:
            raise RuntimeError("the rank was not started")
        return self.job, self.learner


def serve(connection: socket.socket) -> None:
    """Obey until the driver hangs up. A command that fails is answered with the error, and ends the rank."""
    rank = Rank()
    while True:
        try:
            message = receive_blocking(connection)
        except EOFError:
            return
        try:
            reply = HANDLERS[message.op](rank, message)
        except BaseException as error:
            connection.sendall(encode(Message("error", {"error": f"{type(error).__name__}: {error}"})))
            raise
        connection.sendall(encode(Message("ok", reply)))


def _store(rank: Rank, message: Message) -> Mapping[str, Any]:
    """Rank 0: listen for the others."""
    timeout = timedelta(seconds=message.fields["timeout_sec"])
    rank.store, port = listen(message.fields["host"], message.fields["world_size"], timeout)
    return {"port": port}


def _start(rank: Rank, message: Message) -> Mapping[str, Any]:
    """Join the others, build the model, and load a checkpoint if there is one."""
    job = rank.job = RankJob(**message.fields)
    device = _device(job)
    _join(job, rank.store, device)
    torch.manual_seed(job.seed)
    if device.type == "cuda":
        tensor_parallel.model_parallel_cuda_manual_seed(job.seed)
    rank.learner = build(job, device)
    if job.checkpoint:
        state.load(rank.learner, Path(job.checkpoint))
    return {
        "dp_rank": parallel_state.get_data_parallel_rank(),
        "backend": "nccl" if device.type == "cuda" else "gloo",
        "branches": local_layers(device),
        "weights": weights.describe(rank.learner),
    }


def _device(job: RankJob) -> torch.device:
    if not torch.cuda.is_available():
        cpu.prepare()
        return torch.device("cpu")
    # Ranks fill one machine after another; a placement that shows each rank only its own GPU is served as well.
    device = torch.device("cuda", job.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _join(job: RankJob, store: Any, device: torch.device) -> None:
    timeout = timedelta(seconds=job.timeout_sec)
    host, _, port = job.rendezvous.rpartition(":")
    world = job.layout.world
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store or connect(host, int(port), world, timeout),
        rank=job.rank,
        world_size=world,
        timeout=timeout,
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=job.tp,
        pipeline_model_parallel_size=job.pp,
        distributed_timeout_minutes=max(1, round(job.timeout_sec / 60)),
    )


def _train(rank: Rank, message: Message) -> Mapping[str, Any]:
    job, learner = rank.started()
    limits = LossLimits(job.clip_low, job.clip_high, job.tis_cap)
    update = train(learner, _micro_batches(message, learner.device), limits, job.epochs)
    weights.synchronize(learner.device)
    return asdict(update)


def _micro_batches(message: Message, device: torch.device) -> list[Tensors]:
    tensors = {name: torch.from_numpy(array).to(device) for name, array in message.arrays.items()}
    parts = [field.name for field in fields(Tensors)]
    return [Tensors(*(tensors[f"{i}.{part}"] for part in parts)) for i in range(message.fields["micro_batches"])]


def _open(rank: Rank, message: Message) -> Mapping[str, Any]:
    """Rank 0: listen for the engine."""
    job, _ = rank.started()
    rank.channel = weights.Channel(timeout_sec=job.timeout_sec, **message.fields)
    return {"port": rank.channel.port}


def _join_engine(rank: Rank, message: Message) -> Mapping[str, Any]:
    """Rank 0: wait until the engine has joined."""
    if rank.channel is None:
        raise RuntimeError("no weight group was opened")
    rank.channel.join()
    return {}


def _broadcast(rank: Rank, message: Message) -> Mapping[str, Any]:
    _, learner = rank.started()
    count = weights.broadcast(learner, rank.channel)
    weights.synchronize(learner.device)
    return {"weights": count}


def _save(rank: Rank, message: Message) -> Mapping[str, Any]:
    state.save(rank.started()[1], Path(message.fields["folder"]), message.fields["iteration"])
    return {}


def _export(rank: Rank, message: Message) -> Mapping[str, Any]:
    job, learner = rank.started()
    weights.save_hf(learner, Path(job.model_dir), Path(message.fields["folder"]))
    return {}


HANDLERS: Mapping[str, Callable[[Rank, Message], Mapping[str, Any]]] = {
    "store": _store,
    "start": _start,
    "train": _train,
    "open": _open,
    "join": _join_engine,
    "broadcast": _broadcast,
    "save": _save,
    "export": _export,
}


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as driver:
        serve(driver)
