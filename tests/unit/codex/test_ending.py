"""Last words of Codex and what they mean."""

from __future__ import annotations

import json

import pytest

from agentrl.errors import EngineUnavailable
from agentrl.outcomes import AgentEnd
from agentrl.types import ExecResult
from agentrl_codex.ending import judge

SECRET = "s3cret-token"
URL = f"url: http://127.0.0.1:1/s/{SECRET}/v1/responses"
STARTED = [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"}]


def ended(*lines, exit_code=0, stderr=b"", timed_out=False, head=b""):
    stdout = head + b"".join(json.dumps(line).encode() + b"\n" for line in (*STARTED, *lines))
    return judge(ExecResult(exit_code, stdout, stderr, timed_out), SECRET)


def item(kind, **fields):
    return {"type": "item.completed", "item": {"id": "item_0", "type": kind, **fields}}


def failed(message):
    return {"type": "turn.failed", "error": {"message": message}}


def test_a_good_end_and_its_account():
    lines = [
        item("command_execution", exit_code=0),
        {"type": "item.started", "item": {"type": "command_execution"}},
        item("agent_message", text="First."),
        {"type": "error", "message": "Reconnecting... 1/2 (stream disconnected)"},
        item("agent_message", text="Done."),
        {"type": "turn.completed", "usage": {"output_tokens": 7}},
    ]
    judged = ended(*lines, head=b'ut": "cut line"}\nnot json\n[1]\n')
    assert (judged.end, judged.message) == (AgentEnd.FINISHED, "Done.")
    assert judged.details == {
        "exit_code": 0,
        "items": {"command_execution": 1, "agent_message": 2},
        "retries": 1,
        "usage": {"output_tokens": 7},
    }


@pytest.mark.parametrize(
    ("message", "end"),
    [
        ("Codex ran out of room in the model's context window. Start a new thread.", AgentEnd.CONTEXT_BUDGET),
        ("Incomplete response returned, reason: max_output_tokens", AgentEnd.TOKEN_BUDGET),
        ("exceeded retry limit, last status: 429 Too Many Requests", AgentEnd.TURN_BUDGET),
        (f"unexpected status 410 Gone: this session is closed, {URL}", AgentEnd.TIME_BUDGET),
        (f"unexpected status 401 Unauthorized: no session has this token, {URL}", AgentEnd.CRASHED),
        ("stream disconnected before completion: stream closed before response.completed", AgentEnd.CRASHED),
    ],
)
def test_a_failed_turn_says_why(message, end):
    judged = ended(item("agent_message", text="Hm."), failed(message), exit_code=1)
    assert judged.end is end
    assert judged.message == message.replace(SECRET, "…")
    assert SECRET not in judged.message


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"])
def test_nobody_sampled_for_it(status):
    with pytest.raises(EngineUnavailable, match=status) as error:
        ended(failed(f"unexpected status {status}: overloaded, {URL}"), exit_code=1)
    assert SECRET not in str(error.value)


def test_no_last_word_is_a_crash_that_shows_its_error_output():
    judged = ended(item("agent_message", text="Hm."), exit_code=139, stderr=f"Segmentation fault {SECRET}\n".encode())
    assert judged.end is AgentEnd.CRASHED
    assert judged.message == "Codex ended with 139 and no result: Segmentation fault …"


def test_a_timeout_is_the_time_budget_whatever_was_said():
    assert ended(exit_code=137, timed_out=True).end is AgentEnd.TIME_BUDGET
