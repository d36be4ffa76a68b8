"""The gateway under load, in a process of its own that measures itself."""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentrl.gateway.dialects.anthropic import AnthropicMessages
from agentrl.gateway.engine import SGLangEngine
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.memory import settle
from agentrl.gateway.server import Gateway
from agentrl.gateway.session import Session
from agentrl.tokens import load_codec
from agentrl.tokens.samples import samples_from

CONTEXT_TOKENS = 131_072
_BEAT_SEC = 0.005
_STALL_SEC = 0.05


@dataclass
class Stalls:
    """How late the event loop woke up a task that asks for every ``_BEAT_SEC``, and how much of that time it computed itself
    (the rest is other processes and threads)."""

    count: int = 0
    worst: float = 0.0
    worst_cpu: float = 0.0

    async def watch(self) -> None:
        while True:
            start, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_BEAT_SEC)
            late = time.perf_counter() - start - _BEAT_SEC
            self.count += late > _STALL_SEC
            self.worst = max(self.worst, late)
            self.worst_cpu = max(self.worst_cpu, time.thread_time() - cpu)


def serve(model_dir: Path, engine_port: int, pipe: Connection, profile: Path | None) -> None:
    """Serve until told to end. ``pipe``: ``("open", n)`` is answered by (port, paths), ``("close",)`` by what was measured."""
    asyncio.run(_serve(model_dir, engine_port, pipe, profile))


async def _serve(model_dir: Path, engine_port: int, pipe: Connection, profile: Path | None) -> None:
    engine = SGLangEngine(f"http://127.0.0.1:{engine_port}", timeout_sec=60)
    gateway = Gateway(
        codec=load_codec(model_dir),
        engine=engine,
        sampling=SamplingPolicy(),
        dialects=(AnthropicMessages(),),
        context_tokens=CONTEXT_TOKENS,
        turn_timeout_sec=60,
    )
    await gateway.start()
    settle()
    try:
        while (order := await asyncio.to_thread(pipe.recv)) != "end":
            await _round(gateway, order, pipe, profile)
    finally:
        await gateway.aclose()
        await engine.aclose()


async def _round(gateway: Gateway, sessions: int, pipe: Connection, profile: Path | None) -> None:
    """Sessions that clients may use, until the word comes that they are done; then what it took."""
    before_mb = rss_mb()
    opened = [gateway.open_session(f"r{number}") for number in range(sessions)]
    stalls = Stalls()

    watching = asyncio.create_task(stalls.watch())
    profiler = _profiler() if profile else None
    cpu = time.process_time()
    pipe.send((gateway.port, [f"/s/{session.token}" for session in opened]))
    await asyncio.to_thread(pipe.recv)
    cpu = time.process_time() - cpu
    if profiler is not None and profile is not None:
        profiler.disable()
        profiler.dump_stats(profile)
    watching.cancel()

    used_mb = rss_mb()
    found = await _trained(gateway, opened)
    pipe.send(
        {
            **found,
            "cpu_sec": cpu,
            "rss_mb": used_mb,
            "rss_before_mb": before_mb,
            "rss_after_mb": rss_mb(),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "stalls": stalls.count,
            "worst_stall_ms": stalls.worst * 1000,
            "worst_stall_cpu_ms": stalls.worst_cpu * 1000,
        }
    )


async def _trained(gateway: Gateway, sessions: list[Session]) -> dict[str, Any]:
    trained = samples = 0
    count = len(sessions)
    while sessions:
        session = sessions.pop()  # Nobody keeps a session that has ended.
        made = samples_from(await gateway.close_session(session), rollout_id=session.rollout_id, reward=1.0)
        trained += sum(sum(sample.loss_mask) for sample in made)
        samples += len(made)
    return {"trained_tokens": trained, "samples_per_rollout": samples / count}


def rss_mb() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def _profiler() -> Any:
    import cProfile

    profiler = cProfile.Profile()
    profiler.enable()
    return profiler
