"""The service lives exactly as long as its decode thread."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest
import torch

from agentrl_engine_local.server import build, choose_dtype, serve


async def test_a_crash_while_decoding_ends_the_requests_and_the_service_with_its_error(llama: Path) -> None:
    routes, decoding = build(llama, context=64, dtype=torch.float32, slots=2, seed=0, threads=1)

    def crash(spans: object) -> torch.Tensor:
        raise RuntimeError("out of memory, for example")

    decoding.model.forward = crash  # type: ignore[method-assign]
    reader, writer = os.pipe()
    serving = asyncio.create_task(serve(routes, decoding, writer))
    port = int(await asyncio.to_thread(os.read, reader, 16))
    os.close(reader)
    async with aiohttp.ClientSession() as http:
        body = {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 4}}
        with pytest.raises(aiohttp.ClientError):
            await http.post(f"http://127.0.0.1:{port}/generate", json=body)
    with pytest.raises(RuntimeError, match="out of memory"):
        await asyncio.wait_for(serving, 60)


def test_dtype_names() -> None:
    assert choose_dtype("float32") is torch.float32
    assert choose_dtype("bfloat16") is torch.bfloat16
    assert choose_dtype("auto") in (torch.float32, torch.bfloat16)
