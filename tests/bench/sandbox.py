"""What a backend adds to its provider: starts, commands, ends that are noticed, many machines at once, baked layers.

    .venv/bin/python tests/bench/sandbox.py --backend local|docker|e2b|daytona --json FILE [--lives 200] [--harness NAME]

E2B and Daytona are played by the loopback servers of agentrl.testing, in a process of their own, unless ``--real``: then the
environment says which account. ``--latency-ms`` puts them at the distance of a real one. A command's round trip is measured
against the bare SDK's in turns, so that both see the same machine and the same noise: on a busy host only that ratio means
anything. ``notice_lag``: from the last thing that a long command did to the moment when the caller has its result, by the
clock inside corrected by what short commands say of it.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import secrets
import statistics
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sandbox_side

from agentrl.api import AgentrlError, Layer, Resources, Sandbox, SandboxBackend, SandboxSpec, write_layer
from agentrl.lease import Lease
from agentrl.plugins import load_plugins
from agentrl.settings import resolve

LIFETIME_SEC = 1800.0
LABELS = {"agentrl-run": "bench"}
_LOOPBACK = ("e2b", "daytona")


def main() -> None:
    """Measure one backend, print a table, write the JSON."""
    options = _options()
    latency_sec = None if options.real else options.latency_ms / 1000
    with _provider(options.backend, latency_sec) as (environment, left):
        found = asyncio.run(_measure(options, environment))
        found["machines_left"] = left()
    for name, value in found.items():
        print(f"{name:32}{value:>12.2f}" if isinstance(value, float) else f"{name:32}{value:>12}")
    if options.json:
        options.json.write_text(json.dumps({options.backend: found}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmark of sandbox backends.")
    parser.add_argument("--backend", default="local", choices=("local", "docker", "e2b", "daytona"))
    parser.add_argument("--json", type=Path, help="file that receives the figures")
    parser.add_argument("--starts", type=int, default=10, help="machines that are started one after the other")
    parser.add_argument("--execs", type=int, default=50, help="round trips of each kind")
    parser.add_argument("--lives", type=int, default=200, help="machines that live at the same time")
    parser.add_argument("--concurrency", type=int, default=32, help="machines that boot at the same time")
    parser.add_argument("--harness", default="", help="whose layers are baked; default: a stand-in of 500 files, 30 MB")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="how far away a loopback provider is")
    parser.add_argument("--real", action="store_true", help="a real account instead of a loopback provider")
    return parser.parse_args()


@contextmanager
def _provider(name: str, latency_sec: float | None) -> Iterator[tuple[Mapping[str, str], Any]]:
    """The environment of the provider, and a function that ends it and says how many machines it still had. None: a real one."""
    if latency_sec is None or name not in _LOOPBACK:
        yield {}, lambda: 0
        return
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=sandbox_side.serve, args=(name, latency_sec, theirs))
    process.start()
    theirs.close()  # So that its death ends our waiting.

    def end() -> int:
        ours.send("end")
        return int(ours.recv())

    try:
        yield ours.recv(), end
        process.join(60)
    finally:
        process.kill()


async def _measure(options: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Any]:
    backend = sandbox_side.build(options.backend, environment)
    try:
        found = await _starts(backend, options.starts)
        sandbox = await backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=LIFETIME_SEC)
        async with sandbox_side.bare(options.backend, sandbox.id, environment) as bare:
            found |= await _round_trips(sandbox, bare, options.execs)
        found |= await _notices(sandbox)
        await sandbox.close()
        found |= await _layers(backend, _layers_of(options.harness))
        found |= await _lives(backend, options.lives, options.concurrency)
    finally:
        await backend.aclose()
    return found


async def _starts(backend: SandboxBackend, count: int) -> dict[str, float]:
    """From nothing to the answer of the first command."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        sandbox = await backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=LIFETIME_SEC)
        await sandbox.exec("true", timeout_sec=60)
        taken.append(time.perf_counter() - began)
        await sandbox.close()
    return {"start_to_first_exec_ms": _ms(taken), "start_to_first_exec_max_ms": max(taken) * 1000}


async def _round_trips(sandbox: Sandbox, bare: sandbox_side.Bare, count: int) -> dict[str, float]:
    """Ours and the bare call in turns; the first of each opens connections and is left out."""
    ours, theirs = [], []
    for _ in range(count + 1):
        began = time.perf_counter()
        await bare()
        between = time.perf_counter()
        await sandbox.exec("true", timeout_sec=60)
        theirs.append(between - began)
        ours.append(time.perf_counter() - between)
    ratio = statistics.median(ours[1:]) / statistics.median(theirs[1:])
    return {"exec_ms": _ms(ours[1:]), "bare_exec_ms": _ms(theirs[1:]), "exec_over_bare": ratio}


async def _notices(sandbox: Sandbox, count: int = 10) -> dict[str, float]:
    """How long after its end a command of two to three seconds has been answered."""
    skews = []
    for _ in range(10):
        began = time.time()
        inside = await sandbox.exec("date +%s%N", timeout_sec=60)
        skews.append(int(inside.stdout) / 1e9 - (began + time.time()) / 2)
    skew, lags = statistics.median(skews), []
    for i in range(count):
        result = await sandbox.exec(f"sleep {2 + i / count}; date +%s%N", timeout_sec=60)
        lags.append(time.time() - (int(result.stdout) / 1e9 - skew))
    return {"notice_lag_ms": _ms(lags), "notice_lag_max_ms": max(lags) * 1000}


async def _layers(backend: SandboxBackend, layers: Sequence[Layer]) -> dict[str, float]:
    """A machine with a harness's files: installed each time, or baked once."""
    began = time.perf_counter()
    async with asyncio.timeout(LIFETIME_SEC):
        spec = SandboxSpec(network=True)
        sandbox = await backend.create(spec, labels=LABELS, lifetime_sec=LIFETIME_SEC)
        for layer in layers:
            await write_layer(sandbox, layer)
            for command in layer.commands:
                done = await sandbox.exec(command, timeout_sec=600)
                assert done.ok, done
    unprepared = time.perf_counter() - began
    await sandbox.close()
    began = time.perf_counter()
    image = await backend.prepare(None, Resources(), layers)
    built = time.perf_counter() - began
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        again = await backend.prepare(None, Resources(), layers)
        sandbox = await backend.create(replace(spec, image=again), labels=LABELS, lifetime_sec=LIFETIME_SEC)
        await sandbox.exec("true", timeout_sec=60)
        taken.append(time.perf_counter() - began)
        await sandbox.close()
    assert image == again, "built twice"
    figures = {
        "unprepared_start_ms": unprepared * 1000,
        "prepare_once_ms": built * 1000,
        "prepared_start_ms": _ms(taken),
    }
    return {**figures, "unprepared_over_prepared": unprepared / statistics.median(taken)}


def _layers_of(harness: str) -> Sequence[Layer]:
    if harness:
        registry = load_plugins(resolve(overrides={"SWE_AGENT": harness})).registry
        layers: Sequence[Layer] = registry.build(registry.get("harnesses", harness)).layers()
        return layers
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for i in range(500):
            info = tarfile.TarInfo(f"program/{i % 20}/{i}.js")
            info.size = 60_000
            tar.addfile(info, io.BytesIO(secrets.token_bytes(1000) * 60))
    name = f"bench-{secrets.token_hex(4)}"
    unpack = ("mkdir -p /opt/bench && tar -xf /opt/program.tar -C /opt/bench", "rm /opt/program.tar")
    return [Layer(name, unpack, {"/opt/program.tar": packed.getvalue()})]


async def _lives(backend: SandboxBackend, count: int, concurrency: int) -> dict[str, Any]:
    """All of them at once through a lease: start, a command, a file there and back, close."""
    data, failures = secrets.token_bytes(100_000), []
    alive, most = 0, 0
    together = asyncio.Barrier(count)

    async def live(lease: Lease, number: int) -> None:
        nonlocal alive, most
        try:
            async with lease.open(SandboxSpec(), rollout_id=f"bench-{number}", lifetime_sec=LIFETIME_SEC) as sandbox:
                alive += 1
                most = max(most, alive)
                await together.wait()
                await sandbox.write_file("/tmp/data", data)
                result = await sandbox.exec("sleep 1; wc -c < /tmp/data", timeout_sec=300)
                assert result.stdout.strip() == b"100000" and await sandbox.read_file("/tmp/data") == data
                alive -= 1
        except (AgentrlError, AssertionError, asyncio.BrokenBarrierError) as error:
            failures.append(error)
            await together.abort()

    with tempfile.TemporaryDirectory() as folder:
        lease = Lease(backend, run_id="bench", ledger=Path(folder, "ledger.jsonl"), boot_concurrency=concurrency)
        began = time.perf_counter()
        await asyncio.gather(*(live(lease, number) for number in range(count)))
        taken = time.perf_counter() - began
        await lease.aclose()
    for error in failures[:3]:
        print(f"failed: {type(error).__name__}: {error}")
    listed = len(await backend.list({"agentrl-run": "bench"}))
    return {
        "lives": count,
        "lives_at_once": most,
        "lives_failed": len(failures),
        "lives_sec": taken,
        "lives_listed_after": listed,
    }


def _ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


if __name__ == "__main__":
    main()
