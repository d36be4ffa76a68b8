"""Retries, clients that leave, sessions that close, engines that abort: one turn is one turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import anthropic
import openai
import pytest
from aiohttp.http import SERVER_SOFTWARE

from agentrl.gateway.dialects.openai_chat import OpenAIChat
from agentrl.gateway.turn import take_turn

USER = [{"role": "user", "content": "hi"}]
BODY = {"model": "m", "messages": USER}


async def ask(rig, session, body=BODY):
    return await rig.post(session, body)


async def stalled(rig):
    """A session, who asks in it, and the turn that the engine does not answer."""
    session = rig.open()
    rig.engine.fail_next("stall")
    asking = asyncio.create_task(ask(rig, session))
    await rig.engine.arrived.acquire()
    (flight,) = session.flights.values()
    return session, asking, flight


def text(answer):
    return answer[1]["choices"][0]["message"]["content"]


async def test_a_retry_joins_the_turn_that_is_in_flight(make_rig):
    rig = await make_rig(lambda ids, n: f"reply {n}")
    session = rig.open()
    rig.engine.held = asyncio.Event()
    first = asyncio.create_task(ask(rig, session))
    await rig.engine.arrived.acquire()
    again = asyncio.create_task(ask(rig, session, {**BODY, "stream": False, "metadata": {"try": 2}}))
    await until(lambda: session.counters["retries_recognised"] == 1)
    rig.engine.held.set()
    assert text(await first) == text(await again) == "reply 0"
    trajectory = await rig.gateway.close_session(session)
    assert (len(trajectory.turns), len(rig.engine.calls)) == (1, 1)
    assert trajectory.counters["retries_recognised"] == 1


async def test_a_retry_keeps_the_turn_alive_when_the_first_connection_is_gone(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    rig.engine.held = asyncio.Event()
    first = asyncio.create_task(ask(rig, session))
    await rig.engine.arrived.acquire()
    again = asyncio.create_task(ask(rig, session))
    (flight,) = session.flights.values()
    await until(lambda: flight.waiters == 2)
    first.cancel()
    await until(lambda: flight.waiters == 1)
    rig.engine.held.set()
    assert text(await again) == "hello"
    assert rig.engine.aborts == []
    assert len((await rig.gateway.close_session(session)).turns) == 1


async def test_a_retry_that_joins_a_turn_in_its_last_moment_is_told_to_ask_again(make_rig):
    rig = await make_rig("hello")
    session, asking, flight = await stalled(rig)
    flight.task.cancel()
    assert (await asking)[0] == 503
    assert text(await ask(rig, session)) == "hello"


async def test_a_turn_that_is_given_up_twice_is_given_up(make_rig):
    rig = await make_rig("hello")
    session, asking, flight = await stalled(rig)
    async with session.lock:
        flight.task.cancel()
        await until(lambda: session.turns == 0)  # it waits for the lock
        flight.task.cancel()
        assert (await asking)[0] == 503
    assert text(await ask(rig, session)) == "hello"
    trajectory = await rig.gateway.close_session(session)
    assert (len(trajectory.turns), trajectory.counters["turns_dropped"]) == (1, 1)


async def test_a_reply_that_was_never_delivered_answers_the_retry(make_rig):
    rig = await make_rig(lambda ids, n: f"reply {n}")
    session = rig.open()
    # Recorded, but its client is gone before a byte is written: what take_turn leaves behind.
    request = replace(OpenAIChat().read(BODY), client=SERVER_SOFTWARE.split()[0])
    await take_turn(rig.gateway._parts, session, request, dialect="openai_chat")
    assert text(await ask(rig, session)) == "reply 0"
    assert text(await ask(rig, session)) == "reply 1"
    turns = (await rig.gateway.close_session(session)).turns
    assert [t.fork_reason for t in turns] == ["", "resampled"]


async def test_a_reply_is_delivered_also_when_its_client_hangs_up_while_another_turn_holds_the_session(make_rig):
    held = []

    def hold(_rollout, _turn):
        if not held:
            held.append(asyncio.ensure_future(session.lock.acquire()))

    rig = await make_rig(lambda ids, n: f"reply {n}", on_turn=hold)
    session = rig.open()
    url, hang_up = session.url(rig.gateway.url) + "/v1/chat/completions", {"Connection": "close"}
    async with rig.http.post(url, json=BODY, headers=hang_up) as answer:
        assert text((answer.status, await answer.json())) == "reply 0"
    await until(lambda: not rig.gateway._runner.server.connections)
    session.lock.release()
    assert text(await ask(rig, session)) == "reply 1"


async def test_asking_anew_after_delivery_is_a_second_turn(make_rig):
    rig = await make_rig(lambda ids, n: f"reply {n}")
    session = rig.open()
    assert [text(await ask(rig, session)) for _ in range(2)] == ["reply 0", "reply 1"]
    assert len((await rig.gateway.close_session(session)).turns) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_takes_its_turn_along(make_rig, stream):
    rig = await make_rig("hello", ping_sec=0.01)
    session = rig.open()
    rig.engine.fail_next("stall")
    asking = asyncio.create_task(ask(rig, session, {**BODY, "stream": stream}))
    await rig.engine.arrived.acquire()
    asking.cancel()
    await rig.engine.aborted.acquire()
    await until(lambda: not session.flights)
    assert rig.engine.aborts == [rig.engine.calls[0].rid]
    assert session.turns == 0
    # The same question is then a first turn, not a fork.
    assert text(await ask(rig, session)) == "hello"
    (turn,) = (await rig.gateway.close_session(session)).turns
    assert turn.fork_reason == ""


async def test_closing_a_session_aborts_what_is_sampled_and_tells_the_client(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    await ask(rig, session)
    await rig.engine.arrived.acquire()
    rig.engine.fail_next("stall")
    asking = asyncio.create_task(ask(rig, session, {"model": "m", "messages": [{"role": "user", "content": "2"}]}))
    await rig.engine.arrived.acquire()
    trajectory = await rig.gateway.close_session(session)
    status, body = await asking
    assert (status, body["error"]["code"]) == (410, "session_closed")
    await rig.engine.aborted.acquire()
    assert rig.engine.aborts == [rig.engine.calls[1].rid]
    assert len(trajectory.turns) == 1
    assert (await ask(rig, session))[0] == 410
    assert await rig.gateway.close_session(session) == trajectory


async def test_a_generation_that_the_engine_aborted_is_kept_out_of_training_and_nothing_follows_it(make_rig):
    rig = await make_rig("hello")
    session = rig.open(max_turns=1)
    rig.engine.fail_next("abort")
    status, _ = await ask(rig, session)
    assert status == 503
    assert text(await ask(rig, session)) == "hello"
    trajectory = await rig.gateway.close_session(session)
    cut, whole = trajectory.turns
    assert (cut.trainable, cut.excluded, cut.generation.finish) == (False, "abort", "abort")
    assert (whole.trainable, whole.parent_id) == (True, None)
    assert trajectory.counters["generations_aborted"] == 1


async def test_an_engine_that_fails_leaves_no_turn_and_the_official_client_recovers(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    rig.engine.fail_next("http_500", "no_logprobs")
    client = rig.openai(session, max_retries=2)
    client._calculate_retry_timeout = lambda *a, **k: 0
    reply = await client.chat.completions.create(model="m", messages=USER)
    assert reply.choices[0].message.content == "hello"
    assert len(rig.engine.calls) == 3
    assert len((await rig.gateway.close_session(session)).turns) == 1


async def test_an_overloaded_engine_is_reported_with_a_time_to_wait(make_rig):
    rig = await make_rig("hello")
    rig.engine.fail_next("http_503", "http_503")
    with pytest.raises(openai.InternalServerError) as chat:
        await rig.openai(rig.open()).chat.completions.create(model="m", messages=USER)
    with pytest.raises(anthropic.APIStatusError) as message:
        await rig.anthropic(rig.open()).messages.create(model="m", max_tokens=9, messages=USER)
    assert (chat.value.status_code, message.value.status_code) == (503, 529)
    assert message.value.body["error"]["type"] == "overloaded_error"
    for error in (chat.value, message.value):
        assert int(error.response.headers["retry-after"]) > 0


async def test_parallel_turns_of_one_session_do_not_wait_for_each_other(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    rig.engine.held = asyncio.Event()
    bodies = [{"model": "m", "messages": [{"role": "user", "content": f"agent {i}"}]} for i in range(5)]
    asking = [asyncio.create_task(ask(rig, session, body)) for body in bodies]
    for _ in bodies:
        await rig.engine.arrived.acquire()
    rig.engine.held.set()
    assert {text(answer) for answer in await asyncio.gather(*asking)} == {"hello"}
    assert len((await rig.gateway.close_session(session)).turns) == 5


async def until(condition):
    """Let the loop run until ``condition`` holds; the test's own timeout is the judge of never."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)
