"""The local engine as a program: loads a model and serves it.

``python -m agentrl_engine_local.server --model DIR`` listens on 127.0.0.1 and writes its port as a line into ``--ready-fd``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import torch
from aiohttp import web
from tokenizers import Tokenizer

from agentrl_engine_local.config import read_config
from agentrl_engine_local.decoding import Decoding
from agentrl_engine_local.model import Model
from agentrl_engine_local.routes import Routes
from agentrl_engine_local.weights import load_folder
from agentrl_engine_local.wire import Limits


def choose_dtype(name: str) -> torch.dtype:
    """``auto``: bfloat16 where the CPU computes in it, else float32."""
    if name == "auto":
        fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return torch.bfloat16 if fast else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def build(
    model_dir: Path, *, context: int, dtype: torch.dtype, slots: int, seed: int, threads: int
) -> tuple[Routes, Decoding]:
    """Load a model → its routes and the decoding that must be run in a thread."""
    config = read_config(model_dir)
    context = min(context or config.context, config.context)
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    model = Model(config, dtype=dtype, slots=slots, context=context)
    load_folder(model.parameters, model_dir, tied_head=config.tied_head)
    decoding = Decoding(model, slots=slots, decode=tokenizer.decode, seed=seed, threads=threads)
    info = {
        "version": "agentrl-local",
        "model_path": str(model_dir),
        "served_model_name": str(model_dir),
        "tokenizer_path": str(model_dir),
        "is_generation": True,
        "context_length": context,
        "max_total_num_tokens": context * slots,
        "max_running_requests": slots,
        "dtype": str(dtype).removeprefix("torch."),
        "tp_size": 1,
        "dp_size": 1,
    }
    return Routes(decoding, tokenizer, Limits(context, config.vocab, config.stop_ids), info), decoding


async def serve(routes: Routes, decoding: Decoding, ready_fd: int | None, port: int = 0) -> None:
    """Serve until SIGTERM or SIGINT. Raises what ended the decode thread, if that came first."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    # A client that hangs up cancels its handler, which ends its request.
    runner = web.AppRunner(routes.app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    decode = loop.run_in_executor(None, decoding.run)
    decode.add_done_callback(lambda _: ended.set())
    if ready_fd is not None:
        with os.fdopen(ready_fd, "w") as ready:
            ready.write(f"{runner.addresses[0][1]}\n")
    await ended.wait()
    decoding.stop()
    await runner.cleanup()
    await decode


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m agentrl_engine_local.server", description=__doc__)
    parser.add_argument(
        "--model", type=Path, required=True, help="HF folder with config, safetensors and tokenizer.json"
    )
    parser.add_argument(
        "--context", type=int, default=0, help="tokens of prompt and reply together (default: the model's)"
    )
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--slots", type=int, default=16, help="sequences kept in memory")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers for requests without their own")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--ready-fd", type=int, help="file descriptor that receives the port once requests are served")
    asked = parser.parse_args(argv)
    routes, decoding = build(
        asked.model,
        context=asked.context,
        dtype=choose_dtype(asked.dtype),
        slots=asked.slots,
        seed=asked.seed,
        threads=asked.threads,
    )
    asyncio.run(serve(routes, decoding, asked.ready_fd, asked.port))


if __name__ == "__main__":
    main()
