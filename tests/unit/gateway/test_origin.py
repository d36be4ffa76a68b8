"""What code of the policy asks is answered and never trained; what the agent asks in all its ways is trained."""

from __future__ import annotations

import io
import json

import pytest

from agentrl.tokens.samples import samples_from

BASH = {"name": "bash", "input_schema": {"type": "object", "properties": {}}}
CALL = '<call bash {"c": "x"}>'
CLI = {"User-Agent": "claude-cli/2.1.332 (external, sdk-cli)", "X-Claude-Code-Session-Id": "s-1"}


class Agent:
    """A client of the Anthropic dialect: one conversation under fixed headers."""

    def __init__(self, rig, session, *, system="You code.", tools=(BASH,), headers=CLI):
        self.rig, self.session, self.headers = rig, session, headers
        self.body = {"model": "m", "max_tokens": 99, "system": system, "tools": list(tools)}
        self.messages = []

    async def ask(self, text):
        self.messages.append({"role": "user", "content": text})
        return await self.send()

    async def send(self):
        data = io.BytesIO(json.dumps({**self.body, "messages": self.messages}).encode())
        url = self.session.url(self.rig.gateway.url) + "/v1/messages"
        async with self.rig.http.post(url, data=data, headers=self.headers) as response:
            reply = await response.json()
            assert response.status == 200, reply
        self.messages.append({"role": "assistant", "content": reply["content"]})
        return reply

    async def answer(self, text="ok"):
        """The results of the calls of the last reply."""
        calls = [b["id"] for b in self.messages[-1]["content"] if b["type"] == "tool_use"]
        assert calls
        results = [{"type": "tool_result", "tool_use_id": call, "content": text} for call in calls]
        self.messages.append({"role": "user", "content": results})
        return await self.send()


@pytest.fixture
async def rig(make_rig):
    """An engine that calls a tool in each turn."""
    return await make_rig(CALL)


async def excluded(rig, session):
    trajectory = await rig.gateway.close_session(session)
    trained = {i for s in samples_from(trajectory, rollout_id="r", reward=1.0) for i in s.turn_ids}
    assert trained == {t.id for t in trajectory.turns if t.trainable}
    assert trajectory.counters.get("turns_foreign", 0) == sum(not t.trainable for t in trajectory.turns)
    return [t.excluded for t in trajectory.turns]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"headers": {"User-Agent": "Anthropic/Python 0.60"}}, id="another program"),
        pytest.param({"headers": {**CLI, "X-Claude-Code-Session-Id": "s-2"}}, id="another run of the same program"),
        pytest.param({"headers": {**CLI, "User-Agent": "claude-cli/9.0 (external, sdk-cli)"}}, id="another version"),
        pytest.param({"system": "Translate.", "tools": ()}, id="another system prompt and other tools"),
    ],
)
async def test_a_conversation_of_code_that_the_policy_runs_is_answered_and_not_trained(rig, other):
    session = rig.open()
    agent = Agent(rig, session)
    await agent.ask("repair")
    # While the agent waits for its tool.
    stranger = Agent(rig, session, **other)
    await stranger.ask("write a poem")
    await stranger.answer()
    await agent.answer()
    assert await excluded(rig, session) == ["", "foreign_client", "foreign_client", ""]


async def test_another_program_that_goes_on_with_the_agents_own_conversation_is_not_trained_either(rig):
    session = rig.open()
    agent = Agent(rig, session)
    await agent.ask("repair")
    stranger = Agent(rig, session, headers={"User-Agent": "curl/8"})
    stranger.messages = [*agent.messages]
    await stranger.answer("all tests pass")
    await agent.answer()
    assert await excluded(rig, session) == ["", "foreign_client", ""]


async def test_another_dialect_is_another_program(rig):
    session = rig.open()
    await Agent(rig, session, headers={}).ask("repair")
    assert (await rig.post(session, {"model": "m", "messages": [{"role": "user", "content": "hi"}]}))[0] == 200
    assert await excluded(rig, session) == ["", "foreign_client"]


async def test_an_identical_request_of_another_program_is_no_retry_of_the_agents(rig):
    session = rig.open()
    await Agent(rig, session).ask("repair")
    await Agent(rig, session, headers={"User-Agent": "curl/8"}).ask("repair")
    await Agent(rig, session).ask("repair")
    assert await excluded(rig, session) == ["", "foreign_client", ""]


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({"system": "You code.\nDate: tomorrow."}, id="another system prompt, the same tools"),
        pytest.param({"tools": ()}, id="the same system prompt without tools"),
        pytest.param(
            {"system": "Explore.", "tools": (), "headers": {**CLI, "x-claude-code-agent-id": "a1"}}, id="sub-agent"
        ),
        pytest.param({"headers": {**CLI, "User-Agent": "claude-cli/2.1.332 (external, agent)"}}, id="other remarks"),
    ],
)
async def test_compaction_summaries_and_sub_agents_are_the_agents_own(rig, own):
    session = rig.open()
    agent = Agent(rig, session)
    await agent.ask("repair")
    await agent.answer()
    second = Agent(rig, session, **own)
    await second.ask("This is a summary of the conversation so far.")
    await second.answer()
    assert await excluded(rig, session) == ["", "", "", ""]


async def test_side_calls_before_the_first_tool_call_are_the_agents_own(make_rig):
    rig = await make_rig(lambda ids, n: "A title" if n == 0 else CALL)
    session = rig.open()
    await Agent(rig, session, system="Make a title.", tools=()).ask("repair")
    agent = Agent(rig, session)
    await agent.ask("repair")
    await agent.answer()
    assert await excluded(rig, session) == ["", "", ""]


async def test_an_agent_without_tools_and_system_prompt_may_begin_anew_as_often_as_it_likes(make_rig):
    rig = await make_rig("run this")
    session = rig.open()
    for text in ("repair", "summarise", "go on with this summary"):
        agent = Agent(rig, session, system=[], tools=())
        await agent.ask(text)
        await agent.ask("output")
    assert await excluded(rig, session) == [""] * 6
