"""Last words of Claude Code and what they mean."""

from __future__ import annotations

import json

import pytest

from agentrl.errors import EngineUnavailable
from agentrl.outcomes import AgentEnd
from agentrl.types import ExecResult
from agentrl_claude_code.ending import judge

INIT = {"type": "system", "subtype": "init", "claude_code_version": "2.1.332", "tools": ["Bash"]}
SAID = {"type": "assistant", "message": {"content": []}}


def ended(*lines, exit_code=0, stderr=b"", timed_out=False, head=b""):
    stdout = head + b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return ExecResult(exit_code, stdout, stderr, timed_out)


def result(**fields):
    usual = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "terminal_reason": "completed",
        "result": "Done.",
    }
    return {**usual, **fields}


def failed(message, status=None, reason="api_error"):
    return result(is_error=True, terminal_reason=reason, api_error_status=status, result=message)


def test_a_good_end_and_its_account():
    last = result(num_turns=3, usage={"output_tokens": 7}, modelUsage={"tiny": {}})
    judged = judge(ended(INIT, SAID, SAID, last, head=b'ut": "cut line"}\n'))
    assert (judged.end, judged.message) == (AgentEnd.FINISHED, "Done.")
    assert judged.details == {
        "exit_code": 0,
        "version": "2.1.332",
        "tools": ["Bash"],
        "lines": {"system.init": 1, "assistant": 2, "result.success": 1},
        "is_error": False,
        "subtype": "success",
        "terminal_reason": "completed",
        "num_turns": 3,
        "usage": {"output_tokens": 7},
    }


@pytest.mark.parametrize(
    ("last", "end"),
    [
        (
            result(subtype="error_max_turns", is_error=True, terminal_reason="max_turns", errors=["Reached 3"]),
            AgentEnd.TURN_BUDGET,
        ),
        (failed("Prompt is too long", 400, "prompt_too_long"), AgentEnd.CONTEXT_BUDGET),
        (failed("Prompt is too long", None, "blocking_limit"), AgentEnd.CONTEXT_BUDGET),
        (failed("Autocompact is thrashing", None, "rapid_refill_breaker"), AgentEnd.CONTEXT_BUDGET),
        (failed("API Error: Request rejected (429) · turn budget exhausted: of 3", 429), AgentEnd.TURN_BUDGET),
        (failed("API Error: Request rejected (429) · token budget exhausted: of 9", 429), AgentEnd.TOKEN_BUDGET),
        (failed("API Error: Request rejected (429) · time budget exhausted: over", 429), AgentEnd.TIME_BUDGET),
        (failed("API Error: Claude's response exceeded the 4096 output token maximum."), AgentEnd.TOKEN_BUDGET),
        (failed("API Error: 400 messages: must be an array", 400), AgentEnd.CRASHED),
        (failed("API Error: 401 no session has this token", 401), AgentEnd.CRASHED),
        (failed("Something broke", None, "internal_error"), AgentEnd.CRASHED),
    ],
)
def test_the_reason_decides_and_not_the_subtype(last, end):
    assert judge(ended(INIT, last, exit_code=1)).end is end


@pytest.mark.parametrize("status", [None, 429, 500, 529])
def test_nobody_sampled_for_it(status):
    with pytest.raises(EngineUnavailable, match="overloaded"):
        judge(ended(INIT, failed("API Error: overloaded", status), exit_code=1))


def test_no_last_word_is_a_crash_that_shows_its_error_output():
    judged = judge(ended(INIT, SAID, exit_code=139, stderr=b"Segmentation fault\n"))
    assert judged.end is AgentEnd.CRASHED
    assert "139" in judged.message and "Segmentation fault" in judged.message


def test_a_timeout_is_the_time_budget_whatever_was_said():
    assert judge(ended(INIT, exit_code=137, timed_out=True)).end is AgentEnd.TIME_BUDGET
