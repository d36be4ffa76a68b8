"""Budgets, the sampling pin, and middleware around them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import anthropic
import openai
import pytest
from leap import leap

from agentrl.errors import BadRequest

USER = [{"role": "user", "content": "hi"}]


async def ask(rig, session, messages=USER, **more):
    return await rig.post(session, {"model": "m", "messages": messages, **more})


async def test_sampling_belongs_to_the_run_and_max_tokens_is_only_lowered(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    await ask(rig, session, temperature=0.0, top_p=0.1, top_k=3, seed=5, max_tokens=100_000)
    await ask(rig, session, max_tokens=7)
    await ask(rig, session)
    first, second, third = (call.sampling_params for call in rig.engine.calls)
    assert (first["temperature"], first["top_p"], first["top_k"]) == (0.7, 0.9, -1)
    assert "sampling_seed" not in first
    assert [p["max_new_tokens"] for p in (first, second, third)] == [200, 7, 200]
    assert first["stop_token_ids"] == list(rig.codec.stop_token_ids)


async def test_a_turn_budget_ends_the_session_once_and_for_all(make_rig):
    rig = await make_rig("hello")
    session = rig.open(max_turns=2)
    for _ in range(2):
        assert (await ask(rig, session))[0] == 200
    client = rig.openai(session, max_retries=2)
    with pytest.raises(openai.RateLimitError) as caught:
        await client.chat.completions.create(model="m", messages=USER)
    assert (caught.value.code, caught.value.response.headers["x-should-retry"]) == ("budget_exhausted", "false")
    with pytest.raises(anthropic.RateLimitError) as caught:
        await rig.anthropic(session, max_retries=2).messages.create(model="m", max_tokens=9, messages=USER)
    assert caught.value.body["error"]["type"] == "budget_exhausted"
    # Other programs are told the same, but only the agent's own requests say how the rollout ended.
    assert session.exhausted == ""
    assert (await ask(rig, session))[0] == 429
    assert (session.exhausted, len(rig.engine.calls)) == ("turn", 2)
    # The official clients did not ask again: each refusal is one dropped turn.
    assert (await rig.gateway.close_session(session)).counters["turns_dropped"] == 3


async def test_a_turn_budget_holds_against_parallel_requests(make_rig):
    rig = await make_rig("hello")
    session = rig.open(max_turns=2)
    rig.engine.held = asyncio.Event()
    asking = [asyncio.create_task(ask(rig, session, [{"role": "user", "content": str(i)}])) for i in range(4)]
    done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 2:
        more, _ = await asyncio.wait(set(asking) - done, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    rig.engine.held.set()
    assert sorted([status for status, _ in await asyncio.gather(*asking)]) == [200, 200, 429, 429]


async def test_a_token_budget_shortens_the_last_turn_and_refuses_the_next(make_rig):
    rig = await make_rig("x" * 50)
    session = rig.open(max_tokens=60)
    assert [(await ask(rig, session))[0] for _ in range(3)] == [200, 200, 429]
    assert [call.sampling_params["max_new_tokens"] for call in rig.engine.calls] == [60, 9]
    assert (session.tokens, session.exhausted) == (60, "token")


async def test_a_full_context_is_told_in_each_apis_own_words(make_rig):
    rig = await make_rig("hello", context_tokens=20)
    session = rig.open()
    long = [{"role": "user", "content": "x" * 30}]
    with pytest.raises(openai.BadRequestError) as chat:
        await rig.openai(session).chat.completions.create(model="m", messages=long)
    with pytest.raises(anthropic.BadRequestError) as message:
        await rig.anthropic(session).messages.create(model="m", max_tokens=9, messages=long)
    assert chat.value.code == "context_length_exceeded"
    assert message.value.body["error"] == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 33 tokens > 18 maximum",
    }
    assert (session.exhausted, rig.engine.calls) == ("context", [])


async def test_a_turn_may_fill_the_context_and_no_more(make_rig):
    rig = await make_rig("x" * 50, context_tokens=20)
    session = rig.open()
    status, reply = await ask(rig, session)
    assert (status, reply["choices"][0]["finish_reason"]) == (200, "length")
    (call,) = rig.engine.calls
    assert len(call.input_ids) + call.sampling_params["max_new_tokens"] == 19


async def test_only_a_refusal_that_was_the_last_word_counts_as_exhausted(make_rig):
    rig = await make_rig("hello", context_tokens=40)
    session = rig.open()
    refused = await ask(rig, session, [{"role": "user", "content": "x" * 50}])
    assert (refused[0], session.exhausted) == (400, "context")
    # What a client does that makes its history shorter and goes on.
    assert (await ask(rig, session))[0] == 200
    assert session.exhausted == ""


async def test_a_refusal_names_its_budget(make_rig):
    rig = await make_rig("hello")
    session = rig.open(max_turns=1)
    await ask(rig, session)
    assert (await ask(rig, session))[1]["error"]["param"] == "turn"


async def test_time_that_is_up_refuses_and_time_that_runs_out_aborts(make_rig):
    rig = await make_rig("hello")
    late = rig.open(deadline=time.monotonic() - 1)
    assert (await ask(rig, late))[0] == 429
    assert (late.exhausted, rig.engine.calls) == ("time", [])
    soon = rig.open(deadline=time.monotonic() + 100)
    rig.engine.fail_next("stall")
    asking = asyncio.create_task(ask(rig, soon))
    await rig.engine.arrived.acquire()
    leap(100)
    status, reply = await asking
    assert (status, reply["error"]["code"], soon.exhausted) == (429, "budget_exhausted", "time")
    await rig.engine.aborted.acquire()
    assert rig.engine.aborts == [rig.engine.calls[0].rid]


async def test_a_turn_that_takes_too_long_is_given_up(make_rig):
    rig = await make_rig("hello", turn_timeout_sec=100)
    session = rig.open()
    rig.engine.fail_next("stall")
    asking = asyncio.create_task(ask(rig, session))
    await rig.engine.arrived.acquire()
    leap(100)
    assert (await asking)[0] == 503
    await rig.engine.aborted.acquire()
    assert session.exhausted == ""


async def test_middleware_wraps_from_the_outside_in(make_rig):
    seen = []

    def named(name):
        async def layer(turn, call_next):
            seen.append(f"{name} in {turn.dialect} {turn.rollout_id} {turn.turns_so_far}")
            reply = await call_next(turn)
            seen.append(f"{name} out {reply.finish}")
            return reply

        return layer

    rig = await make_rig("hello", middleware=[named("outer"), named("inner")])
    await ask(rig, rig.open("r7"))
    assert seen == ["outer in openai_chat r7 0", "inner in openai_chat r7 0", "inner out stop", "outer out stop"]


async def test_middleware_can_shorten_a_turn_but_not_lengthen_it(make_rig):
    wanted = iter([5, 10**6])

    async def resize(turn, call_next):
        return await call_next(replace(turn, max_new_tokens=next(wanted)))

    rig = await make_rig("hello", middleware=[resize])
    session = rig.open()
    await ask(rig, session)
    await ask(rig, session)
    assert [call.sampling_params["max_new_tokens"] for call in rig.engine.calls] == [5, 200]


async def test_middleware_can_refuse_a_turn(make_rig):
    async def refuse(turn, call_next):
        raise BadRequest("not this one")

    rig = await make_rig("hello", middleware=[refuse])
    session = rig.open()
    status, reply = await ask(rig, session)
    assert (status, reply["error"]["message"]) == (400, "not this one")
    assert (await rig.gateway.close_session(session)).turns == ()


async def rewrite(turn, call_next):
    reply = await call_next(turn)
    return replace(reply, finish="length")


async def answer_alone(turn, call_next):
    return None


async def sample_twice(turn, call_next):
    await call_next(turn)
    return await call_next(turn)


async def crash(turn, call_next):
    await call_next(turn)
    raise RuntimeError("secret detail")


@pytest.mark.parametrize("layer", [rewrite, answer_alone, sample_twice, crash])
async def test_middleware_that_breaks_the_rules_records_nothing_and_is_our_fault(make_rig, layer, caplog):
    rig = await make_rig("hello", middleware=[layer])
    session = rig.open()
    status, reply = await ask(rig, session)
    assert status == 500
    assert "secret detail" not in str(reply)
    assert ("secret detail" in caplog.text) == (layer is crash)
    assert (await rig.gateway.close_session(session)).turns == ()
