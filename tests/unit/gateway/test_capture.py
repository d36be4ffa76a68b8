"""What was sampled is what the next prompt starts with and what the trajectory holds, id for id."""

from __future__ import annotations

import asyncio

from agentrl.types import Text, ToolCall

USER = [{"role": "user", "content": "look around"}]


async def ask(rig, session, messages, **more):
    status, reply = await rig.post(session, {"model": "m", "messages": messages, **more})
    assert status == 200, reply
    return reply["choices"][0]["message"]


async def test_the_next_prompt_starts_with_the_ids_that_were_sampled_and_not_with_their_text(make_rig):
    said = ['Looking.<call bash {"cmd":"ls"}>', "All done"]
    rig = await make_rig()
    rig.engine._script = lambda ids, n: rig.codec.spell(said[n], pairs=True)
    session = rig.open()
    first = await ask(rig, session, USER)
    answer = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "a.txt"}
    await ask(rig, session, [*USER, first, answer])

    one, two = rig.engine.calls
    prefix = one.input_ids + one.output_ids
    assert two.input_ids[: len(prefix)] == prefix
    assert rig.codec.text(two.input_ids[len(prefix) :]) == "a.txt"
    # The spelling is one that encoding the text again would never have given.
    assert one.output_ids != rig.codec.spell(said[0])

    trajectory = await rig.gateway.close_session(session)
    a, b = trajectory.turns
    assert (b.parent_id, a.parent_id, b.fork_reason) == (a.id, None, "")
    assert list(a.new_ids + a.generation.ids + b.new_ids) == two.input_ids
    assert [list(t.generation.ids) for t in trajectory.turns] == [one.output_ids, two.output_ids]
    assert b.prompt_tokens == len(two.input_ids)


async def test_a_turn_is_found_again_however_the_client_echoes_it(make_rig):
    rig = await make_rig(lambda ids, n: [' Looking.\n<call bash {"cmd":"ls", "t":1}>', "Done"][n])
    session = rig.open()
    first = await ask(rig, session, USER)
    call = first["tool_calls"][0]
    altered = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**call, "function": {"name": "bash", "arguments": '{"t": 1, "cmd": "ls", "extra": null}'}}],
    }
    await ask(rig, session, [*USER, altered, {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"}])
    one, two = rig.engine.calls
    assert two.input_ids[: len(one.input_ids + one.output_ids)] == one.input_ids + one.output_ids


async def test_a_reply_that_did_not_end_its_turn_is_ended_before_the_next_part(make_rig):
    rig = await make_rig(lambda ids, n: "a long story")
    session = rig.open()
    first = await ask(rig, session, USER, max_tokens=6)
    await ask(rig, session, [*USER, first, {"role": "user", "content": "go on"}])
    one, two = rig.engine.calls
    stop = rig.codec.stop_token_ids[0]
    prefix = one.input_ids + one.output_ids
    assert stop not in one.output_ids
    assert two.input_ids[: len(prefix) + 1] == [*prefix, stop]


async def test_a_template_that_cannot_extend_starts_a_new_root_and_says_why(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    first = await ask(rig, session, USER)
    rig.codec.stable = False
    await ask(rig, session, [*USER, first, {"role": "user", "content": "more"}])
    a, b = (await rig.gateway.close_session(session)).turns
    assert (b.parent_id, b.fork_reason) == (None, "template_not_prefix_stable")
    assert list(b.new_ids) == rig.engine.calls[1].input_ids
    assert a.parent_id is None


async def test_two_agents_of_one_session_have_chains_of_their_own(make_rig):
    rig = await make_rig("hello")
    session = rig.open()
    url = session.url(rig.gateway.url) + "/v1/messages"
    body = {"model": "m", "max_tokens": 9, "messages": USER}
    for lane in ("", "agent-7"):
        headers = {"x-claude-code-agent-id": lane} if lane else {}
        async with rig.http.post(url, json=body, headers=headers) as response:
            assert response.status == 200
    assert [t.lane for t in (await rig.gateway.close_session(session)).turns] == ["", "agent-7"]


async def test_the_evidence_is_what_went_over_the_wire(make_rig):
    rig = await make_rig(lambda ids, n: f"reply {n}")
    session = rig.open()
    messages = list(USER)
    for _ in range(3):
        messages += [await ask(rig, session, messages), {"role": "user", "content": "more"}]
    trajectory = await rig.gateway.close_session(session)
    assert [(list(c.input_ids), list(c.output_ids)) for c in trajectory.calls] == [
        (c.input_ids, c.output_ids) for c in rig.engine.calls
    ]
    assert [c.logprobs for c in trajectory.calls] == [t.generation.logprobs for t in trajectory.turns]


async def test_each_turn_carries_the_versions_of_its_dispatch_and_of_its_end(make_rig):
    rig = await make_rig("hello", engine={"version": "v1"})
    session = rig.open()
    rig.engine.held = asyncio.Event()
    asking = asyncio.create_task(ask(rig, session, USER))
    await rig.engine.arrived.acquire()
    rig.engine.version = "v2"
    rig.engine.held.set()
    await asking
    (turn,) = (await rig.gateway.close_session(session)).turns
    assert (turn.generation.dispatch_version, turn.generation.weight_version) == ("v1", "v2")


async def test_a_turn_is_announced_before_its_reply_is_delivered(make_rig):
    rig = await make_rig("hello")
    session = rig.open("rollout-9")
    await ask(rig, session, USER)
    ((rollout, turn),) = rig.turns
    assert rollout == "rollout-9"
    assert (await rig.gateway.close_session(session)).turns == (turn,)


async def test_calls_get_ids_of_ours_that_differ_from_turn_to_turn(make_rig):
    rig = await make_rig('<call bash {"cmd":"ls"}><call bash {"cmd":"ls"}>')
    ids = [c["id"] for _ in range(2) for c in (await ask(rig, rig.open(), USER))["tool_calls"]]
    assert len(set(ids)) == 4


async def test_what_the_forest_stores_is_what_the_client_got(make_rig):
    rig = await make_rig('ok<call bash {"cmd":"ls"}>')
    session = rig.open()
    sent = await ask(rig, session, USER)
    (turn,) = session.forest.turns()
    text, call = session.forest.stored_reply(turn.id).blocks
    assert text == Text(sent["content"])
    assert call == ToolCall(sent["tool_calls"][0]["id"], "bash", {"cmd": "ls"})
