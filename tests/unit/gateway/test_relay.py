"""Any agent with any model: what the agent says in its API reaches the model in the model's, and back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from upstream_server import UpstreamServer

from agentrl.gateway.dialects.anthropic import AnthropicMessages
from agentrl.gateway.dialects.openai_chat import OpenAIChat
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.relay import RELAYED, Relay
from agentrl.gateway.server import Gateway
from agentrl.gateway.session import Budgets
from agentrl.gateway.upstream import ATTEMPTS, Upstream

TOOL = {"type": "object", "properties": {"command": {"type": "string"}}}
OPENAI = {
    "path": "/v1/chat/completions",
    "body": {
        "model": "x",
        "temperature": 0.9,
        "max_tokens": 50,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": "looking",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command":"pwd"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "/w"},
            {"role": "user", "content": "go on"},
        ],
        "tools": [{"type": "function", "function": {"name": "bash", "description": "d", "parameters": TOOL}}],
    },
}
ANTHROPIC = {
    "path": "/v1/messages",
    "body": {
        "model": "x",
        "max_tokens": 50,
        "system": "be brief",
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "looking"},
                    {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "pwd"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "/w"},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [{"name": "bash", "description": "d", "input_schema": TOOL}],
    },
}


@asynccontextmanager
async def relaying(api, replies, **budgets):
    """(ask, session, upstream): ``await ask(OPENAI)`` is one request of an agent."""
    naps = []

    async def sleep(seconds):
        naps.append(seconds)

    async with UpstreamServer(replies) as there, aiohttp.ClientSession() as http:
        url = f"{there.url}/v1" if api == "openai" else there.url
        upstream = Upstream(api, url, model="big", key="secret", timeout_sec=600, sleep=sleep)
        relay = Relay(upstream, SamplingPolicy(max_new_tokens=40), (), 32_000, 600)
        gateway = Gateway.relaying(relay, dialects=(OpenAIChat(), AnthropicMessages()))
        await gateway.start()
        session = gateway.open_session("r", Budgets(**budgets))

        async def ask(request, **changes):
            body = {**request["body"], **changes}
            async with http.post(session.url(gateway.url) + request["path"], json=body) as answer:
                return answer.status, await answer.json() if "json" in answer.content_type else await answer.text()

        try:
            yield ask, (gateway, session), (there, naps)
        finally:
            await gateway.aclose()
            await upstream.aclose()


@pytest.mark.parametrize("agent", [OPENAI, ANTHROPIC], ids=["openai agent", "anthropic agent"])
async def test_an_openai_model_is_asked_in_its_own_words(agent):
    async with relaying("openai", [{"name": "bash", "input": {}}]) as (ask, _, (there, _naps)):
        status, answer = await ask(agent)
        [(headers, sent)] = there.requests
    assert (status, headers["Authorization"]) == (200, "Bearer secret")
    assert (sent["model"], sent["max_completion_tokens"]) == ("big", 40)
    assert "temperature" not in sent
    assert sent["messages"] == OPENAI["body"]["messages"]
    assert sent["tools"] == OPENAI["body"]["tools"]
    if agent is OPENAI:
        assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"command":"ls"}'
    else:
        assert answer["content"] == [{"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}]


@pytest.mark.parametrize("agent", [OPENAI, ANTHROPIC], ids=["openai agent", "anthropic agent"])
async def test_an_anthropic_model_is_asked_in_its_own_words(agent):
    async with relaying("anthropic", ["done"]) as (ask, _, (there, _naps)):
        status, answer = await ask(agent)
        [(headers, sent)] = there.requests
    assert (status, headers["x-api-key"]) == (200, "secret")
    wanted = {**ANTHROPIC["body"], "model": "big", "max_tokens": 40}
    wanted["messages"] = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}, *wanted["messages"][1:]]
    assert sent == wanted
    assert "done" in str(answer)
    usage = answer["usage"]
    assert usage.get("prompt_tokens", usage.get("input_tokens")) == 11


async def test_streams_are_answered_as_streams():
    async with relaying("openai", ["done"]) as (ask, _, _there):
        status, text = await ask(OPENAI, stream=True)
    assert status == 200 and '"content":"done"' in text and text.endswith("data: [DONE]\n\n")


async def test_turns_are_counted_and_budgets_hold():
    async with relaying("openai", ["one"], max_turns=2) as (ask, (gateway, session), _there):
        assert [(await ask(OPENAI))[0] for _ in range(3)] == [200, 200, 429]
        assert session.exhausted == "turn"
        trajectory = await gateway.close_session(session)
    assert (trajectory.turns, trajectory.counters[RELAYED]) == ((), 2)
    assert trajectory.counters["tokens_answered"] == 14


async def test_a_busy_model_is_asked_again_and_not_for_ever():
    async with relaying("openai", [429, 503, "at last"]) as (ask, _, (there, naps)):
        assert (await ask(OPENAI))[0] == 200
        assert (len(there.requests), len(naps)) == (3, 2)
    async with relaying("openai", [503]) as (ask, (_, session), (there, _naps)):
        assert (await ask(OPENAI))[0] == 503
        assert len(there.requests) == ATTEMPTS
        assert session.turns == 0


@pytest.mark.parametrize(
    ("api", "status", "answered", "exhausted"),
    [("openai", 400, 400, "context"), ("openai", 401, 500, ""), ("anthropic", 400, 400, "context")],
)
async def test_a_refusal_is_final_and_a_full_context_ends_the_agent(api, status, answered, exhausted):
    async with relaying(api, [status]) as (ask, (_, session), (there, _naps)):
        got, _ = await ask(OPENAI)
        assert (got, session.exhausted, len(there.requests)) == (answered, exhausted, 1)


async def test_closing_the_session_ends_the_call():
    async def forever(_seconds):
        await asyncio.Event().wait()

    async with UpstreamServer([503]) as there, aiohttp.ClientSession() as http:
        upstream = Upstream("openai", there.url + "/v1", model="big", key="", timeout_sec=600, sleep=forever)
        gateway = Gateway.relaying(Relay(upstream, SamplingPolicy(), (), 32_000, 600), dialects=(OpenAIChat(),))
        await gateway.start()
        session = gateway.open_session("r")
        asking = asyncio.create_task(http.post(session.url(gateway.url) + OPENAI["path"], json=OPENAI["body"]))
        while not there.requests:
            await asyncio.sleep(0.01)
        await gateway.close_session(session)
        async with await asking as answer:
            assert answer.status == 410
        await gateway.aclose()
        await upstream.aclose()
