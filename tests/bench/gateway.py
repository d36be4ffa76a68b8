"""How fast and how exact the gateway is: S sessions of T turns each, with an engine and clients in processes of their own.

    .venv/bin/python tests/bench/gateway.py --json FILE [--shapes 1x100,32x50,1000x3]

A turn: the Anthropic dialect, streamed; a tool result of 400 tokens, 64 sampled tokens with one non-canonical spelling, behind a
system prompt of 10,000 tokens (the last turn of 1x100 has a prompt of 60,000). The engine answers at once, so that
a latency is what gateway, engine protocol and client add together. Medians: the opening's one render does not flatter
the first turns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import client_side
import engine_side
import gateway_side
from scene import SAMPLED_TOKENS, make_scene

from agentrl_engine_local.demo_model import demo_model

SHAPES = "1x100,32x50"
_COLUMNS = (
    *("turns_per_s", "latency_ms_mean", "latency_ms_p50", "latency_ms_p99", "latency_ms_first5", "latency_ms_last5"),
    *("cpu_s_per_1000_turns", "rss_mb", "rss_after_mb", "trained_share", "samples_per_rollout"),
    *("stalls", "worst_stall_ms", "worst_stall_cpu_ms", "health_ms_max"),
)


def main() -> None:
    """Run the shapes, print a table, write the JSON."""
    options = _options()
    model_dir = options.model or demo_model()
    scene = make_scene(model_dir)
    with (
        _process(engine_side.serve, scene.replies) as engine,
        _process(client_side.drive, scene.opening, scene.results) as clients,
        _process(client_side.watch) as watcher,
    ):
        engine_port = engine.recv()
        found = {}
        for shape in options.shapes.split(","):
            # A process for each shape: memory of one is not counted in the next.
            with _process(gateway_side.serve, model_dir, engine_port, after=(options.profile,)) as gateway:
                found[shape] = _measure(shape, engine, clients, watcher, gateway)
    _show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmark of the gateway.")
    parser.add_argument("--json", type=Path, help="file that receives the figures")
    parser.add_argument("--shapes", default=SHAPES, help="sessions x turns, separated by commas")
    parser.add_argument("--model", type=Path, help="folder of a ChatML model; default: the demo model")
    parser.add_argument("--profile", type=Path, help="file that receives the event loop's cProfile (and slows it down)")
    return parser.parse_args()


@contextmanager
def _process(target: Any, *arguments: Any, after: tuple[Any, ...] = ()) -> Iterator[Connection]:
    """``target`` in a fresh process, spoken to through a pipe; it is told to end."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=target, args=(*arguments, theirs, *after), daemon=True)
    process.start()
    theirs.close()  # So that its death ends our waiting.
    try:
        yield ours
        ours.send("end")
        process.join(30)
    finally:
        process.kill()


def _measure(
    shape: str, engine: Connection, clients: Connection, watcher: Connection, gateway: Connection
) -> dict[str, Any]:
    sessions, turns = map(int, shape.split("x"))
    gateway.send(sessions)
    port, paths = gateway.recv()
    before = _generations(engine)
    watcher.send(port)
    start = time.perf_counter()
    clients.send((port, paths, turns))
    played = clients.recv()
    took = time.perf_counter() - start
    watcher.send("stop")
    healths = watcher.recv()
    gateway.send("done")
    inside = gateway.recv()
    generated = _generations(engine) - before
    flat = sorted(second for session in played for second in session)
    assert len(flat) == sessions * turns, "turns were lost"
    return {
        "sessions": sessions,
        "turns": turns,
        "turns_per_s": len(flat) / took,
        "latency_ms_mean": statistics.fmean(flat) * 1000,
        "latency_ms_p50": statistics.median(flat) * 1000,
        "latency_ms_p99": flat[int(len(flat) * 0.99)] * 1000,
        "latency_ms_first5": statistics.median(s for session in played for s in session[:5]) * 1000,
        "latency_ms_last5": statistics.median(s for session in played for s in session[-5:]) * 1000,
        "cpu_s_per_1000_turns": inside["cpu_sec"] / len(flat) * 1000,
        "health_ms_max": max(healths) * 1000,
        "trained_share": inside.pop("trained_tokens") / (generated * SAMPLED_TOKENS),
        **inside,
    }


def _generations(engine: Connection) -> int:
    engine.send("count")
    return int(engine.recv())


def _show(found: dict[str, dict[str, Any]]) -> None:
    print(f"{'':24}" + "".join(f"{shape:>12}" for shape in found))
    for column in _COLUMNS:
        print(f"{column:24}" + "".join(f"{figures[column]:>12.2f}" for figures in found.values()))


if __name__ == "__main__":
    main()
