"""OpenAI Responses with the official SDK as client."""

from __future__ import annotations

import json

import openai
import pytest

PARAMETERS = {"type": "object", "properties": {"cmd": {"type": "string"}}}
TOOLS = [{"type": "function", "name": "bash", "description": "Run", "parameters": PARAMETERS, "strict": False}]
PATCH = {"type": "custom", "name": "patch", "description": "Edit", "format": {"type": "text"}}
SAID = '<think>two commands</think>Looking.<call bash {"cmd":"ls"}><call bash {"cmd":"pwd"}>'
PING_SEC = 0.01


def shape(response):
    """All that was said, without ids."""
    parsed = {"id", "call_id", "parsed_arguments"}
    items = [item.model_dump(exclude=parsed) for item in response.output]
    for part in (part for item in items for part in item.get("content") or ()):
        part.pop("parsed", None)  # what the SDK adds to a stream
    return items


def record(trajectory):
    """All that training sees of a trajectory."""
    return [(t.new_ids, t.generation.ids, t.generation.logprobs, t.prompt_tokens) for t in trajectory.turns]


def echoed(response):
    """The reply as a client sends it back."""
    return [item.model_dump(exclude_none=True) for item in response.output]


def result(call, output):
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


async def streamed(client, **request):
    """All events, and what the SDK makes of them."""
    async with client.responses.stream(**request) as stream:
        events = [event async for event in stream]
        return events, await stream.get_final_response()


async def test_streamed_and_not_give_the_same_reply_and_the_same_record(make_rig):
    rig = await make_rig(SAID)
    request = {"model": "policy", "input": "look around", "tools": TOOLS, "instructions": "Be brief."}
    one, two = rig.open("plain"), rig.open("streamed")
    whole = await rig.openai(one).responses.create(**request)
    events, final = await streamed(rig.openai(two), **request)

    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert whole.output[0].content[0].text == "two commands"
    assert whole.output_text == final.output_text == "Looking."
    assert [json.loads(item.arguments) for item in whole.output[2:]] == [{"cmd": "ls"}, {"cmd": "pwd"}]
    assert len({item.call_id for item in whole.output[2:]}) == 2
    assert shape(whole) == shape(final)
    assert (whole.status, whole.model, whole.error) == (final.status, "policy", None) == ("completed", "policy", None)
    call = rig.engine.calls[0]
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (len(call.input_ids), len(call.output_ids))
    assert whole.usage == final.usage
    assert events[-1].type == "response.completed"
    first, second = [await rig.gateway.close_session(s) for s in (one, two)]
    assert record(first) == record(second)
    assert len(first.turns) == 1


async def test_a_stream_tells_each_item_from_its_opening_to_its_end(make_rig):
    rig = await make_rig('<think>hm</think>Look.<call bash {"cmd":"ls"}><call patch {"input":"*** x"}>')
    body = {"model": "m", "input": "go", "tools": [*TOOLS, PATCH], "stream": True}
    async with rig.http.post(rig.open().url(rig.gateway.url) + "/v1/responses", json=body) as response:
        assert response.content_type == "text/event-stream"
        *raw, rest = (await response.text()).split("\n\n")
    events = [json.loads(event.split("\n")[1].removeprefix("data: ")) for event in raw]
    assert rest == ""
    assert [event.split("\n")[0] for event in raw] == [f"event: {event['type']}" for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    steps = [(event.get("output_index"), event["type"].removeprefix("response.")) for event in events]
    part = ["content_part.added", "{}.delta", "{}.done", "content_part.done"]
    inside = [
        [step.format("reasoning_text") for step in part],
        [step.format("output_text") for step in part],
        ["function_call_arguments.delta", "function_call_arguments.done"],
        ["custom_tool_call_input.delta", "custom_tool_call_input.done"],
    ]
    items = [(i, s) for i, ss in enumerate(inside) for s in ["output_item.added", *ss, "output_item.done"]]
    assert steps == [(None, "created"), (None, "in_progress"), *items, (None, "completed")]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done
    ids = [event["item_id"] for event in events if "item_id" in event]
    assert set(ids) == {item["id"] for item in done} and len(set(ids)) == 4


async def test_it_puts_the_same_prompt_before_the_engine_as_chat_completions(make_rig):
    rig = await make_rig("ok")
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}
    function = {"name": "bash", "description": "Run", "parameters": PARAMETERS}
    await rig.openai(rig.open()).chat.completions.create(
        model="m",
        tools=[{"type": "function", "function": function}],
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look around"},
            {"role": "assistant", "content": "Hm.", "reasoning_content": "so", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
            {"role": "developer", "content": "Hurry."},
            {"role": "user", "content": "and?"},
        ],
    )
    await rig.openai(rig.open()).responses.create(
        model="m",
        instructions="Be brief.",
        tools=[*TOOLS, {"type": "web_search"}, {"type": "namespace", "name": "agents", "tools": TOOLS}],
        input=[
            {"role": "user", "content": "look around"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"cmd": "ls"}'},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a.txt"}]},
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Hurry."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
        ],
    )
    first, second = (call.input_ids for call in rig.engine.calls)
    assert first == second
    assert '<think>so</think>Hm.<call bash {"cmd": "ls"}>a.txtHurry.and?' in rig.codec.text(first)


async def test_a_conversation_that_is_sent_back_stays_one_chain(make_rig):
    said = [SAID, '<call bash {"cmd":"a"}>', "done"]
    rig = await make_rig(lambda _ids, n: rig.codec.spell(said[n], pairs=True))
    session = rig.open()
    items = [{"role": "user", "content": "look around"}]
    for _ in said:
        response = await rig.openai(session).responses.create(model="m", input=items, tools=TOOLS)
        calls = [item for item in response.output if item.type == "function_call"]
        items = [*items, *echoed(response), *(result(call, f"out {call.arguments}") for call in calls)]
    trajectory = await rig.gateway.close_session(session)
    assert [turn.fork_reason for turn in trajectory.turns] == ["", "", ""]
    for before, after in zip(rig.engine.calls, rig.engine.calls[1:], strict=False):
        prefix = before.input_ids + before.output_ids
        assert after.input_ids[: len(prefix)] == prefix


async def test_a_tool_that_takes_bare_text_gets_bare_text(make_rig):
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    text = '*** Begin\n"x" é'
    said = [f"<call patch {json.dumps({'input': text})}>", '<call patch {"input":"a","more":1}>', "done"]
    rig = await make_rig(lambda _ids, n: rig.codec.spell(said[n]))
    session, items = rig.open(), [{"role": "user", "content": "edit"}]
    for _ in said:
        tools = [{**PATCH, "format": grammar}]
        response = await rig.openai(session).responses.create(model="m", input=items, tools=tools)
        for call in response.output[:1]:
            if call.type == "custom_tool_call":
                output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": f"saw {call.input}"}
                items = [*items, *echoed(response), output]
    assert items[1]["input"] == text
    assert json.loads(items[3]["input"]) == {"input": "a", "more": 1}
    assert all(not turn.fork_reason for turn in (await rig.gateway.close_session(session)).turns)
    assert rig.codec.text(rig.engine.calls[1].input_ids).endswith(f"saw {text}")


async def test_counts_tokens_as_the_turn_then_has_them(make_rig):
    rig = await make_rig("hello")
    client = rig.openai(rig.open())
    request = {"model": "m", "input": "look around", "instructions": "Be brief.", "tools": TOOLS}
    counted = await client.responses.input_tokens.count(**request)
    response = await client.responses.create(**request)
    assert counted.input_tokens == response.usage.input_tokens
    assert len(rig.engine.calls) == 1


async def test_a_cut_reply_is_incomplete(make_rig):
    rig = await make_rig("a long story")
    request = {"model": "m", "input": "tell", "max_output_tokens": 4}
    whole = await rig.openai(rig.open()).responses.create(**request)
    assert (whole.status, whole.incomplete_details.reason, whole.output_text) == (
        "incomplete",
        "max_output_tokens",
        "a lo",
    )
    stream = await rig.openai(rig.open()).responses.create(stream=True, **request)
    last = [event async for event in stream][-1]
    assert last.type == "response.incomplete"
    assert shape(last.response) == shape(whole)


def user(part):
    return [{"role": "user", "content": [part]}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id: nothing is stored here"),
        ({"conversation": "conv_1"}, "conversation: nothing is stored"),
        ({"background": True}, "background: "),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0: nothing is stored here"),
        ({"input": []}, "input: must be a string or a non-empty array"),
        ({"input": None}, "input: must be"),
        ({"input": ["hi"]}, "input.0: must be an object"),
        ({"input": [{"type": "web_search_call", "id": "w"}]}, "input.0.type: items of type 'web_search_call'"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role: must be user"),
        ({"input": user({"type": "input_image", "image_url": "data:"})}, "'input_image' is not supported"),
        ({"input": [{"type": "function_call", "name": "a", "arguments": "{}"}]}, "input.0.call_id"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "a"}]}, "input.0.input"),
        ({"tools": [{"type": "function", "parameters": {}}]}, "tools.0.name"),
        ({"tools": "all"}, "tools: must be an array"),
        ({"max_output_tokens": 0}, "max_output_tokens: must be a positive integer"),
    ],
)
async def test_what_cannot_be_served_is_refused_with_a_reason(make_rig, body, words):
    rig = await make_rig("never")
    status, answer = await rig.post(rig.open(), {"model": "m", "input": "hi", **body}, "/v1/responses")
    assert status == 400
    assert words in answer["error"]["message"]
    assert (answer["error"]["type"], answer["error"]["code"]) == ("invalid_request_error", None)
    assert rig.engine.calls == []


async def test_what_a_model_cannot_read_in_a_tools_output_becomes_a_remark(make_rig):
    rig = await make_rig("ok")
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "broken {"}
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:"}]
    items = [*user({"type": "input_text", "text": "go"}), call]
    body = {"model": "m", "input": [*items, {"type": "function_call_output", "call_id": "c", "output": parts}]}
    status, _ = await rig.post(rig.open(), {**body, "unknown": {"field": 1}, "tool_choice": "auto"}, "/v1/responses")
    assert status == 200
    prompt = rig.codec.text(rig.engine.calls[0].input_ids)
    assert prompt == 'go<call look {"arguments": "broken {"}>see\n[input_image omitted: this model reads text only]'


async def test_errors_keep_their_class_and_their_code(make_rig):
    rig = await make_rig("hello", context_tokens=100)
    request = {"model": "m", "input": "hi"}
    with pytest.raises(openai.BadRequestError, match=r"prompt is too long: .* tokens > 98 maximum") as long:
        await rig.openai(rig.open()).responses.create(model="m", input="x" * 200)
    assert long.value.code == "context_length_exceeded"
    spent = rig.openai(rig.open(max_turns=1))
    await spent.responses.create(**request)
    with pytest.raises(openai.RateLimitError) as budget:
        await spent.responses.create(**request, stream=True)
    assert (budget.value.code, budget.value.param) == ("budget_exhausted", "turn")
    rig.engine.fail_next("http_503")
    with pytest.raises(openai.APIStatusError) as busy:
        await rig.openai(rig.open()).responses.create(**request)
    assert (busy.value.status_code, busy.value.code) == (503, "engine_overloaded")
    assert busy.value.response.headers["retry-after"]
    closed = rig.open()
    await rig.gateway.close_session(closed)
    with pytest.raises(openai.APIStatusError) as gone:
        await rig.openai(closed).responses.create(**request)
    assert (gone.value.status_code, gone.value.code) == (410, "session_closed")
    stranger = rig.open()
    stranger.token = "nobody"
    with pytest.raises(openai.AuthenticationError):
        await rig.openai(stranger).responses.create(**request)


async def test_a_stream_is_kept_alive_and_ends_with_an_error_that_clients_understand(make_rig):
    rig = await make_rig("hello", ping_sec=PING_SEC)
    rig.engine.fail_next("stall")
    session = rig.open()
    body = {"model": "m", "input": "hi", "stream": True}
    async with rig.http.post(session.url(rig.gateway.url) + "/v1/responses", json=body) as response:
        assert await response.content.readline() == b": ping\n"
        await rig.gateway.close_session(session)
        last = (await response.text()).strip().split("\n\n")[-1].split("\n")
    failed = json.loads(last[1].removeprefix("data: "))
    assert last[0] == "event: response.failed"
    assert failed["response"]["error"]["code"] == "session_closed"


async def test_the_sdk_raises_an_error_that_comes_inside_a_stream(make_rig):
    rig = await make_rig("hello", ping_sec=PING_SEC, turn_timeout_sec=0.1)
    rig.engine.fail_next("stall")
    with pytest.raises(openai.APIError, match="within"):
        await streamed(rig.openai(rig.open()), model="m", input="hi")


@pytest.mark.parametrize("said", ["", " \n", "<think>hm</think>"])
async def test_a_reply_is_never_blank(make_rig, said):
    rig = await make_rig(said)
    response = await rig.openai(rig.open()).responses.create(model="m", input="hi")
    assert response.output[-1].type == "message"
    assert response.output_text.strip()
