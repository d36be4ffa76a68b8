"""Tokens, routes, bodies: who is let in and what is answered to everybody else."""

from __future__ import annotations

import asyncio
import io
import threading

import anthropic
import openai
import pytest

USER = [{"role": "user", "content": "hi"}]
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


async def send(rig, path, *, method="POST", headers=None, data=None, json=None):
    async with rig.http.request(method, rig.gateway.url + path, headers=headers, data=data, json=json) as response:
        return response.status, await response.read()


@pytest.mark.parametrize("where", ["path", "x-api-key", "bearer"])
async def test_the_token_is_accepted_in_three_places(make_rig, where):
    rig = await make_rig("hello")
    session = rig.open()
    headers = {"x-api-key": {"x-api-key": session.token}, "bearer": {"Authorization": f"Bearer {session.token}"}}
    path = f"/s/{session.token}{CHAT}" if where == "path" else CHAT
    status, _ = await send(rig, path, headers=headers.get(where), json={"model": "m", "messages": USER})
    assert status == 200
    assert len((await rig.gateway.close_session(session)).turns) == 1


async def test_official_clients_can_carry_the_token_as_their_api_key(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    async with openai.AsyncOpenAI(base_url=rig.gateway.url + "/v1", api_key=session.token) as client:
        assert (await client.chat.completions.create(model="m", messages=USER)).choices
    async with anthropic.AsyncAnthropic(base_url=rig.gateway.url, api_key=session.token) as client:
        assert (await client.messages.create(model="m", max_tokens=9, messages=USER)).content


async def test_without_a_good_token_there_is_no_service(make_rig):
    rig = await make_rig("hello")
    other = rig.open()
    with pytest.raises(anthropic.AuthenticationError) as message:
        async with anthropic.AsyncAnthropic(
            base_url=rig.gateway.url + "/s/guess", api_key="x", max_retries=0
        ) as client:
            await client.messages.create(model="m", max_tokens=9, messages=USER)
    assert message.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(openai.AuthenticationError) as chat:
        async with openai.AsyncOpenAI(base_url=rig.gateway.url + "/v1", api_key="guess", max_retries=0) as client:
            await client.chat.completions.create(model="m", messages=USER)
    assert chat.value.code == "invalid_api_key"
    for path in ("/", "/nowhere", "/s/", CHAT, f"/s/{CHAT}"):
        assert (await send(rig, path, method="GET"))[0] == 401
    assert rig.engine.calls == []
    assert other.token not in repr(other)


async def test_a_closed_session_is_gone_for_its_own_token_only(make_rig):
    rig = await make_rig("hello")
    closed, open_ = rig.open(), rig.open()
    await rig.gateway.close_session(closed)
    assert (await rig.post(closed, {"model": "m", "messages": USER}))[0] == 410
    assert (await rig.post(closed, {"model": "m", "messages": USER}, MESSAGES))[0] == 410
    assert (await rig.post(open_, {"model": "m", "messages": USER}))[0] == 200


async def test_health_needs_no_token_and_a_sessions_root_answers_probes(make_rig):
    rig = await make_rig("hello")
    root = f"/s/{rig.open().token}"
    for method, path in (("GET", "/health"), ("HEAD", root), ("GET", root), ("HEAD", root + "/")):
        assert (await send(rig, path, method=method))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/v1/nothing", 404), ("GET", CHAT, 405), ("HEAD", "/api/hello", 404)]
)
async def test_unknown_routes_and_methods(make_rig, method, path, status):
    rig = await make_rig("hello")
    session = rig.open()
    answered, body = await send(rig, f"/s/{session.token}{path}", method=method)
    assert answered == status
    assert session.token.encode() not in body


BAD = [
    b"",
    b"not json",
    b"[1]",
    b'{"messages": "hi"}',
    b'{"messages": []}',
    b'{"messages": [1]}',
    b'{"messages": [{"role": "robot", "content": "hi"}]}',
    b'{"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}',
    b'{"messages": [{"role": "user", "content": {"a": 1}}]}',
    b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": "many"}',
    b'{"messages": [{"role": "user", "content": "hi"}], "tools": [7]}',
    b'{"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "web_search_20250305", "name": "web"}]}',
    b'{"messages": [{"role": "user", "content": "hi"}], "model": 3}',
    b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}',
    b'{"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": ""}}]}]}',
]


@pytest.mark.parametrize("body", BAD)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_what_is_wrong_with_a_request_is_the_clients_fault_and_says_where(make_rig, path, body):
    rig = await make_rig("hello")
    session = rig.open()
    async with rig.http.post(session.url(rig.gateway.url) + path, data=body) as response:
        answer = await response.json()
    assert response.status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"]
    assert rig.engine.calls == []


async def test_unknown_fields_and_a_tool_choice_without_tools_are_tolerated(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    extra = {"tool_choice": "auto", "from_the_future": {"a": [1]}, "stream_options": {"include_usage": True}}
    assert (await rig.post(session, {"model": "m", "messages": USER, **extra}))[0] == 200
    user = [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}, "x": 1}]}
    ]
    extra = {"tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"}, "context_management": {}}
    assert (await rig.post(session, {"model": "m", "max_tokens": 9, "messages": user, **extra}, MESSAGES))[0] == 200


async def test_a_picture_in_a_tool_result_becomes_a_remark(make_rig):
    rig = await make_rig("hello")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    user = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [picture]}]}
    assert (await rig.post(rig.open(), {"model": "m", "max_tokens": 9, "messages": [*USER, user]}, MESSAGES))[0] == 200
    assert "[image omitted" in rig.codec.text(rig.engine.calls[0].input_ids)


async def test_a_system_message_in_mid_conversation_stays_where_it_was(make_rig):
    rig = await make_rig("hello")
    messages = [*USER, {"role": "system", "content": "date"}, {"role": "user", "content": "go"}]
    assert (await rig.post(rig.open(), {"model": "m", "max_tokens": 9, "messages": messages}, MESSAGES))[0] == 200
    assert rig.codec.text(rig.engine.calls[0].input_ids) == "hidatego"


async def test_a_tool_result_of_20_megabytes_is_read_and_judged_by_its_tokens(make_rig):
    rig = await make_rig("hello")
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "x" * (20 << 20)}
    body = {"model": "m", "max_tokens": 9, "messages": [*USER, {"role": "user", "content": [answer]}]}
    status, reply = await rig.post(rig.open(), body, MESSAGES)
    assert status == 400
    assert reply["error"]["message"].startswith("prompt is too long: 209715")


async def test_big_requests_are_read_and_rendered_off_the_event_loop(make_rig):
    rig = await make_rig("hello", context_tokens=100_000)
    session = rig.open()
    where, release = [], threading.Event()
    render = rig.codec.render

    def slow(messages, tools):
        where.append(threading.current_thread())
        assert release.wait(60)
        return render(messages, tools)

    rig.codec.render = slow
    asking = asyncio.create_task(
        rig.post(session, {"model": "m", "messages": [{"role": "user", "content": "x" * 50_000}]})
    )
    try:
        while not where:
            assert (await send(rig, "/health", method="GET"))[0] == 200
        assert (await send(rig, "/health", method="GET"))[0] == 200
        assert not asking.done()
    finally:
        release.set()
    assert (await asking)[0] == 200
    assert where == [t for t in where if t is not threading.main_thread()]


async def test_the_gateway_listens_on_loopback_and_ends_everything_when_closed(make_rig):
    rig = await make_rig("hello")
    assert {host for host, _ in rig.gateway._runner.addresses} == {"127.0.0.1"}
    session = rig.open()
    rig.engine.fail_next("stall")
    asking = asyncio.create_task(rig.post(session, {"model": "m", "messages": USER}))
    await rig.engine.arrived.acquire()
    await rig.gateway.aclose()
    await rig.gateway.aclose()
    await rig.engine.aborted.acquire()
    assert (await asking)[0] == 410
    assert session.closed


async def test_a_request_beyond_the_limit_is_refused_and_the_next_one_served(make_rig, monkeypatch):
    monkeypatch.setattr("agentrl.gateway.server.MAX_BODY_BYTES", 1 << 20)
    rig = await make_rig("hello")
    path = f"/s/{rig.open().token}{CHAT}"
    status, body = await send(rig, path, data=io.BytesIO(b"x" * (3 << 20)))
    assert (status, b"larger than 1 MiB" in body) == (400, True)
    status, _ = await send(rig, path, json={"model": "m", "messages": USER})
    assert status == 200
