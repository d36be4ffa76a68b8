"""The engine's client against a server that speaks SGLang's protocol."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from reserved import reserved_port

from agentrl.engine import TensorSpec, WeightGroup
from agentrl.errors import ContextOverflow, EngineError, EngineUnavailable
from agentrl.gateway.engine import SGLangEngine
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl.types import SamplingParams

PARAMS = SamplingParams(max_new_tokens=8, temperature=0.5, top_p=0.9, top_k=40, stop=("END",), stop_token_ids=(99,))
GROUP = WeightGroup("weights", "127.0.0.1", 29500, 2, "gloo")


@asynccontextmanager
async def pair(script=lambda ids, n: [5, 6, 99], **options):
    async with ScriptedEngine(script, **options) as server:
        client = SGLangEngine(server.url, timeout_sec=600)
        try:
            yield server, client
        finally:
            await client.aclose()


async def test_a_generation_is_exactly_what_the_engine_sampled():
    async with pair(logprob=lambda i: -i / 128) as (server, client):
        generation = await client.generate([1, 2, 3], PARAMS, "rid-1", routing_key="session-1")
    assert (generation.ids, generation.logprobs) == ((5, 6, 99), (-5 / 128, -6 / 128, -99 / 128))
    assert (generation.finish, generation.request_id) == ("stop", "rid-1")
    (call,) = server.calls
    assert (call.rid, call.input_ids, call.headers["X-SMG-Routing-Key"]) == ("rid-1", [1, 2, 3], "session-1")
    assert call.sampling_params == {
        "max_new_tokens": 8,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "stop": ["END"],
        "stop_token_ids": [99],
    }


async def test_a_seed_is_sent_only_when_given():
    async with pair() as (server, client):
        await client.generate([1], SamplingParams(4, seed=7), "a")
        await client.generate([1], SamplingParams(4), "b")
    assert server.calls[0].sampling_params["sampling_seed"] == 7
    assert "sampling_seed" not in server.calls[1].sampling_params


async def test_a_generation_cut_by_its_limit_says_so():
    async with pair(lambda ids, n: [5] * 20) as (_, client):
        generation = await client.generate([1], PARAMS, "a")
    assert (generation.finish, len(generation.ids)) == ("length", 8)


@pytest.mark.parametrize("fault", ["no_logprobs", "none_logprob", "short_logprobs", "wrong_ids"])
async def test_inexact_logprobs_are_an_error_and_never_a_turn(fault):
    async with pair() as (server, client):
        server.fail_next(fault)
        with pytest.raises(EngineError, match="logprob"):
            await client.generate([1], PARAMS, "a")


async def test_a_generation_without_tokens_is_an_error():
    async with pair(lambda ids, n: []) as (_, client):
        with pytest.raises(EngineError, match="without sampling"):
            await client.generate([1], PARAMS, "a")


async def test_a_prompt_beyond_the_engines_context_is_a_context_overflow():
    async with pair(context_tokens=4) as (_, client):
        with pytest.raises(ContextOverflow) as caught:
            await client.generate([1] * 6, PARAMS, "a")
    assert (caught.value.tokens, caught.value.limit) == (6, 3)


@pytest.mark.parametrize(
    ("fault", "kind"), [("http_500", EngineError), ("http_503", EngineUnavailable), ("reset", EngineUnavailable)]
)
async def test_what_may_have_arrived_is_asked_once(fault, kind):
    async with pair() as (server, client):
        server.fail_next(fault)
        with pytest.raises(kind) as caught:
            await client.generate([1], PARAMS, "a")
    assert len(server.calls) == 1
    assert getattr(caught.value, "arrived", True)


async def test_a_generation_whose_connection_broke_is_aborted():
    async with pair() as (server, client):
        server.fail_next("reset")
        with pytest.raises(EngineUnavailable):
            await client.generate([1], PARAMS, "a")
        await client.aclose()
        assert server.aborts == ["a"]


async def test_a_refused_connection_is_tried_again_until_the_engine_listens():
    waits = []

    async def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            await stack.enter_async_context(ScriptedEngine(lambda ids, n: [5], port=port))

    async with AsyncExitStack() as stack:
        port = stack.enter_context(reserved_port())
        client = SGLangEngine(f"http://127.0.0.1:{port}", timeout_sec=600, sleep=sleep)
        stack.push_async_callback(client.aclose)
        assert (await client.generate([1], PARAMS, "a")).ids == (5,)
    assert len(waits) == 2


async def test_an_engine_that_never_listens_did_not_get_the_request():
    async def sleep(seconds):
        pass

    with reserved_port() as port:
        client = SGLangEngine(f"http://127.0.0.1:{port}", timeout_sec=600, sleep=sleep)
        with pytest.raises(EngineUnavailable, match="connect") as caught:
            await client.generate([1], PARAMS, "a")
        with pytest.raises(EngineUnavailable):
            await client.health()
        await client.aclose()
    assert not caught.value.arrived


async def test_cancelling_the_caller_aborts_the_generation():
    async with pair() as (server, client):
        server.fail_next("stall")
        task = asyncio.create_task(client.generate([1], PARAMS, "a"))
        await server.arrived.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.aborted.acquire()
        assert server.aborts == ["a"]


async def test_an_abort_gives_what_was_sampled_so_far():
    async with pair(lambda ids, n: [5, 6, 7, 8]) as (server, client):
        server.fail_next("stall")
        task = asyncio.create_task(client.generate([1], PARAMS, "a"))
        await server.arrived.acquire()
        await client.abort("a")
        generation = await task
    assert (generation.finish, generation.ids) == ("abort", (5, 6))


async def test_a_router_does_not_forward_aborts_so_they_go_to_the_workers():
    async with ScriptedEngine(lambda ids, n: [5]) as worker:

        async def workers(_):
            return web.json_response({"workers": [{"id": "w", "url": worker.url}]})

        app = web.Application()
        app.add_routes([web.get("/workers", workers)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = SGLangEngine(f"http://127.0.0.1:{runner.addresses[0][1]}", timeout_sec=600)
        try:
            await client.abort("a")
        finally:
            await client.aclose()
            await runner.cleanup()
        assert worker.aborts == ["a"]


@pytest.mark.parametrize("told", [True, False], ids=["weight_versions", "older server"])
async def test_a_generation_knows_the_versions_of_its_dispatch_and_of_its_end(told):
    async with pair(version="v1", weight_versions=told) as (server, client):
        server.held = asyncio.Event()
        task = asyncio.create_task(client.generate([1], PARAMS, "a"))
        await server.arrived.acquire()
        server.version = "v2"
        server.held.set()
        across, after = await task, await client.generate([1], PARAMS, "b")
    assert (across.dispatch_version, across.weight_version) == ("v1", "v2")
    assert (after.dispatch_version, after.weight_version) == ("v2", "v2")


@pytest.mark.parametrize("brackets", [True, False], ids=["0.5.23", "older server"])
async def test_weights_are_published_by_broadcast(brackets):
    tensors = [TensorSpec("a.weight", "float32", (2, 3)), TensorSpec("b.bias", "bfloat16", (4,))]
    async with pair(brackets=brackets) as (server, client):
        await client.join_weight_group(GROUP)
        await client.update_weights(tensors, GROUP, "v7")
        assert await client.weight_version() == "v7"
        assert (await client.generate([1], PARAMS, "a")).dispatch_version == "v7"
    assert server.updates == [
        {
            "names": ["a.weight", "b.bias"],
            "dtypes": ["float32", "bfloat16"],
            "shapes": [[2, 3], [4]],
            "group_name": "weights",
            "weight_version": "v7",
            "flush_cache": True,
        }
    ]


async def test_weights_can_come_from_disk(tmp_path):
    async with pair() as (server, client):
        await client.update_weights_from_disk(tmp_path, "v2")
        assert await client.weight_version() == "v2"
    assert server.updates[0]["model_path"] == str(tmp_path)


async def test_an_engine_that_refuses_weights_is_an_error(monkeypatch):
    async def refuse(self, http):
        return web.json_response({"success": False, "message": "shape of weight differs"})

    monkeypatch.setattr(ScriptedEngine, "_update", refuse)
    async with pair() as (_, client):
        with pytest.raises(EngineError, match="shape of weight differs"):
            await client.update_weights([], GROUP, "v2")


async def test_a_paused_engine_holds_generations_until_resumed():
    async with pair() as (server, client):
        await client.pause()
        task = asyncio.create_task(client.generate([1], PARAMS, "a"))
        await server.arrived.acquire()
        await client.health()
        assert not task.done()
        await client.resume()
        assert (await task).ids == (5, 6, 99)
