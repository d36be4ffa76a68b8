"""Asking the gateway: answers verbatim, budgets told apart from failures."""

import socket

import aiohttp
import pytest
from chat_server import ChatServer

from agentrl.api import AgentEnd, EngineUnavailable, HarnessError, HarnessJob, OutOfBudget, ask

MESSAGES = [{"role": "user", "content": "hi"}]


def job(url: str) -> HarnessJob:
    return HarnessJob("r", "p", "/w", url, "the-key", "m", 0, 60.0, 30.0, 1000)


async def asked(reply):
    async with ChatServer([reply]) as server, aiohttp.ClientSession() as http:
        return await ask(http, job(server.url), MESSAGES), server


async def test_an_answer_is_verbatim_and_echoes_as_it_is():
    answer, server = await asked(" \n odd \n")
    assert answer.content == " \n odd \n"
    assert answer.echo() == {"role": "assistant", "content": " \n odd \n"}
    assert server.authorizations == ["Bearer the-key"]
    assert server.requests[0]["messages"] == MESSAGES


async def test_a_cut_answer_says_so():
    answer, _ = await asked({"content": "half", "finish_reason": "length"})
    assert answer.finish == "length"


@pytest.mark.parametrize(
    ("refusal", "end"),
    [
        ({"status": 400, "code": "context_length_exceeded"}, AgentEnd.CONTEXT_BUDGET),
        ({"status": 429, "code": "budget_exhausted", "param": "turn"}, AgentEnd.TURN_BUDGET),
        ({"status": 429, "code": "budget_exhausted", "param": "token"}, AgentEnd.TOKEN_BUDGET),
        ({"status": 429, "code": "budget_exhausted", "param": "time"}, AgentEnd.TIME_BUDGET),
        ({"status": 410}, AgentEnd.TIME_BUDGET),
    ],
)
async def test_a_spent_budget_is_no_failure(refusal, end):
    with pytest.raises(OutOfBudget) as caught:
        await asked(refusal)
    assert caught.value.end is end


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_an_engine_in_trouble_is_the_engines_failure(status):
    with pytest.raises(EngineUnavailable):
        await asked({"status": status})


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_request_that_is_wrong_is_the_harness_failure(status):
    with pytest.raises(HarnessError):
        await asked({"status": status})


async def test_a_gateway_that_is_not_there_is_the_engines_failure_and_shows_no_token():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        async with aiohttp.ClientSession() as http:
            with pytest.raises(EngineUnavailable) as caught:
                await ask(http, job(f"http://127.0.0.1:{deaf.getsockname()[1]}/s/secret-token"), MESSAGES)
    assert "secret-token" not in str(caught.value)
