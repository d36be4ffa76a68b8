"""The official SDKs as clients: they parse every reply, and streamed or not, the record is the same."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Run",
            "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
        },
    }
]
ANTHROPIC_TOOLS = [{"name": "bash", "description": "Run", "input_schema": TOOLS[0]["function"]["parameters"]}]
SAID = '<think>two commands</think>Looking.<call bash {"cmd":"ls"}><call bash {"cmd":"pwd"}>'
USER = [{"role": "user", "content": "look around"}]


async def openai_stream(client, **request):
    """What a careful client makes of the chunks."""
    text, thought, calls, finish, usage = "", "", {}, None, None
    async for chunk in await client.chat.completions.create(stream=True, **request):
        usage = chunk.usage or usage
        (choice,) = chunk.choices
        finish = choice.finish_reason or finish
        text += choice.delta.content or ""
        thought += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or []:
            name, arguments = calls.get(call.index, ("", ""))
            calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
    return text, thought, [calls[i] for i in sorted(calls)], finish, usage


def record(trajectory):
    """All that training sees of a trajectory."""
    return [(t.new_ids, t.generation.ids, t.generation.logprobs, t.prompt_tokens) for t in trajectory.turns]


async def test_openai_streamed_and_not_give_the_same_reply_and_the_same_record(make_rig):
    rig = await make_rig(SAID)
    request = {"model": "policy", "messages": USER, "tools": TOOLS}
    plain, streamed = rig.open("plain"), rig.open("streamed")
    whole = await rig.openai(plain).chat.completions.create(**request)
    text, thought, calls, finish, usage = await openai_stream(rig.openai(streamed), **request)

    message = whole.choices[0].message
    assert (message.content, message.reasoning_content) == (text, thought) == ("Looking.", "two commands")
    assert [(c.function.name, c.function.arguments) for c in message.tool_calls] == calls
    assert [json.loads(arguments) for _, arguments in calls] == [{"cmd": "ls"}, {"cmd": "pwd"}]
    assert len({c.id for c in message.tool_calls}) == 2
    assert whole.choices[0].finish_reason == finish == "tool_calls"
    prompt, sampled = rig.engine.calls[0].input_ids, rig.engine.calls[0].output_ids
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), len(sampled))
    assert whole.usage == usage and whole.model == "policy"
    first, second = [await rig.gateway.close_session(s) for s in (plain, streamed)]
    assert record(first) == record(second)
    assert len(first.turns) == 1


async def test_anthropic_streamed_and_not_give_the_same_reply_and_the_same_record(make_rig):
    rig = await make_rig(SAID)
    request = {"model": "policy", "max_tokens": 300, "messages": USER, "tools": ANTHROPIC_TOOLS, "system": "Be brief."}
    plain, streamed = rig.open("plain"), rig.open("streamed")
    whole = await rig.anthropic(plain).messages.create(**request)
    async with rig.anthropic(streamed).messages.stream(**request) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_message()

    def shape(message):
        return [
            block.model_dump(exclude={"id"}, include={"type", "text", "thinking", "name", "input"})
            for block in message.content
        ]

    assert [b.type for b in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert shape(whole) == shape(final)
    assert [b.input for b in final.content[2:]] == [{"cmd": "ls"}, {"cmd": "pwd"}]
    assert whole.stop_reason == final.stop_reason == "tool_use"
    starts = [e.index for e in events if e.type == "content_block_start"]
    assert starts == [e.index for e in events if e.type == "content_block_stop"] == [0, 1, 2, 3]
    started = next(e for e in events if e.type == "message_start").message.usage
    call = rig.engine.calls[0]
    assert started.input_tokens == final.usage.input_tokens == whole.usage.input_tokens == len(call.input_ids)
    assert final.usage.output_tokens == whole.usage.output_tokens == len(call.output_ids)
    first, second = [await rig.gateway.close_session(s) for s in (plain, streamed)]
    assert record(first) == record(second)
    assert len(first.turns) == 1


async def test_both_apis_put_the_same_prompt_before_the_engine(make_rig):
    rig = await make_rig("ok")
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}
    await rig.openai(rig.open()).chat.completions.create(
        model="m",
        tools=TOOLS,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "look around"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
            {"role": "user", "content": "and?"},
        ],
    )
    await rig.anthropic(rig.open()).messages.create(
        model="m",
        max_tokens=10,
        tools=ANTHROPIC_TOOLS,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1.2.3;"},
            {"type": "text", "text": "Be brief."},
        ],
        messages=[
            *USER,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "bash", "input": {"cmd": "ls"}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
                    {"type": "text", "text": "and?", "cache_control": {"type": "ephemeral"}},
                ],
            },
        ],
    )
    first, second = (call.input_ids for call in rig.engine.calls)
    assert rig.codec.text(first) == '[bash]Be brief.look around<call bash {"cmd": "ls"}>a.txtand?'
    assert first == second


async def test_anthropic_counts_tokens_as_the_turn_then_has_them(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    client = rig.anthropic(session)
    counted = await client.messages.count_tokens(model="m", messages=USER, system="Be brief.")
    reply = await client.messages.create(model="m", max_tokens=9, messages=USER, system="Be brief.")
    assert counted.input_tokens == reply.usage.input_tokens
    longer = [*USER, {"role": "assistant", "content": reply.content[0].text}, {"role": "user", "content": "more"}]
    counted = await client.messages.count_tokens(model="m", messages=longer, system="Be brief.")
    reply = await client.messages.create(model="m", max_tokens=9, messages=longer, system="Be brief.")
    assert counted.input_tokens == reply.usage.input_tokens
    assert len((await rig.gateway.close_session(session)).turns) == 2


@pytest.mark.parametrize("said", ["", "  \n", "<think>hm</think>", "<think>hm</think>\n\n"])
async def test_a_reply_is_never_blank(make_rig, said):
    rig = await make_rig(said)
    reply = await rig.anthropic(rig.open()).messages.create(model="m", max_tokens=9, messages=USER)
    assert [b.text.strip() for b in reply.content if b.type == "text"] != [""]
    assert reply.content[-1].type == "text"
    reply = await rig.openai(rig.open()).chat.completions.create(model="m", messages=USER)
    assert reply.choices[0].message.content.strip()


async def test_lone_surrogates_and_nul_break_nothing(make_rig):
    rig = await make_rig(r'<call bash {"cmd":"a\ud800b\u0000c", "n": 123456789012345678901234567890}>')
    session = rig.open()
    body = b'{"model":"m","messages":[{"role":"user","content":"x\\ud800y\\u0000z"}]}'
    async with rig.http.post(session.url(rig.gateway.url) + "/v1/chat/completions", data=body) as response:
        reply = await response.json()
    assert response.status == 200
    arguments = json.loads(reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"cmd": "a\ufffdb\0c", "n": 123456789012345678901234567890}
    assert rig.codec.text(rig.engine.calls[0].input_ids) == "x\ufffdy\0z"
    reply = await rig.anthropic(rig.open()).messages.create(model="m", max_tokens=200, messages=USER)
    assert reply.content[0].input["cmd"] == "a\ufffdb\0c"


async def test_what_is_stored_is_as_clean_as_what_was_sent(make_rig):
    rig = await make_rig(r'<call bash {"cmd":"a\ud800b"}>')
    session = rig.open()
    await rig.post(session, {"model": "m", "messages": USER})
    ((turn,), stored) = (await rig.gateway.close_session(session)).turns, session.forest.stored_reply
    assert stored(turn.id).blocks[0].arguments == {"cmd": "a\ufffdb"}


async def test_streams_on_the_wire(make_rig):
    rig = await make_rig(SAID)
    raw = {}
    for path in ("/v1/messages", "/v1/chat/completions"):
        body = {"model": "m", "max_tokens": 200, "messages": USER, "stream": True}
        async with rig.http.post(rig.open().url(rig.gateway.url) + path, json=body) as response:
            assert response.content_type == "text/event-stream"
            raw[path] = (await response.text()).split("\n\n")
    *events, rest = raw["/v1/messages"]
    assert rest == ""
    for event in events:
        name, data = event.split("\n")
        assert name == "event: " + json.loads(data.removeprefix("data: "))["type"]
    assert [e.split("\n")[0] for e in (events[0], events[-1])] == ["event: message_start", "event: message_stop"]
    *chunks, done, rest = raw["/v1/chat/completions"]
    assert (done, rest) == ("data: [DONE]", "")
    assert all(json.loads(chunk.removeprefix("data: "))["choices"] for chunk in chunks)


async def test_a_cut_reply_says_so_in_each_apis_words(make_rig):
    rig = await make_rig("a long story")
    chat = await rig.openai(rig.open()).chat.completions.create(model="m", messages=USER, max_completion_tokens=4)
    assert (chat.choices[0].finish_reason, chat.choices[0].message.content) == ("length", "a lo")
    message = await rig.anthropic(rig.open()).messages.create(model="m", messages=USER, max_tokens=4)
    assert (message.stop_reason, message.content[0].text) == ("max_tokens", "a lo")


async def test_a_stream_is_kept_alive_while_the_engine_samples(make_rig):
    rig = await make_rig("hello", ping_sec=0.01)
    rig.engine.fail_next("stall", "stall")
    for path, ping in (("/v1/messages", b"event: ping\n"), ("/v1/chat/completions", b": ping\n")):
        session = rig.open()
        body = {"model": "m", "max_tokens": 9, "messages": USER, "stream": True}
        async with rig.http.post(session.url(rig.gateway.url) + path, json=body) as response:
            assert await response.content.readline() == ping
            assert response.status == 200
            await rig.gateway.close_session(session)
            rest = (await response.read()).decode()
        # The session was closed under the stream: the client is told inside it.
        assert "session_closed" in rest


async def test_the_sdks_raise_an_error_that_comes_inside_a_stream(make_rig):
    rig = await make_rig("hello", ping_sec=0.01, turn_timeout_sec=0.1)
    rig.engine.fail_next("stall", "stall")
    with pytest.raises(openai.APIError, match="within"):
        await openai_stream(rig.openai(rig.open()), model="m", messages=USER)
    with pytest.raises(anthropic.APIStatusError, match="within"):
        async with rig.anthropic(rig.open()).messages.stream(model="m", max_tokens=9, messages=USER) as stream:
            await stream.get_final_message()
