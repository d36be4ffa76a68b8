"""How the program ended: its last line of output, judged.

``subtype`` says ``success`` for failed requests too, so ``is_error`` and ``terminal_reason`` decide.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.api import AgentEnd, EngineUnavailable, ExecResult, HarnessResult

_REASONS = {
    "max_turns": AgentEnd.TURN_BUDGET,
    "prompt_too_long": AgentEnd.CONTEXT_BUDGET,
    "blocking_limit": AgentEnd.CONTEXT_BUDGET,
    "rapid_refill_breaker": AgentEnd.CONTEXT_BUDGET,
}
_BUDGETS = {
    "turn": AgentEnd.TURN_BUDGET,
    "token": AgentEnd.TOKEN_BUDGET,
    "context": AgentEnd.CONTEXT_BUDGET,
    "time": AgentEnd.TIME_BUDGET,
}
_REFUSED = re.compile(r"\b(turn|token|context|time) budget exhausted\b")
_CUT = re.compile(r"exceeded the \S+ output token maximum")
_KEPT = (
    "is_error",
    "subtype",
    "terminal_reason",
    "num_turns",
    "api_error_status",
    "usage",
    "duration_ms",
    "session_id",
)


def judge(done: ExecResult) -> HarnessResult:
    """How the agent ended. Raises: EngineUnavailable when it gave up because nobody sampled for it."""
    lines = list(_lines(done.stdout))
    last = next((line for line in reversed(lines) if line.get("type") == "result"), None)
    details = _details(done, lines, last or {})
    if done.timed_out:
        return HarnessResult(AgentEnd.TIME_BUDGET, "its time is over", details)
    if last is None:
        said = done.stderr[-1000:].decode(errors="replace").strip()
        return HarnessResult(
            AgentEnd.CRASHED, f"Claude Code ended with {done.exit_code} and no result: {said}", details
        )
    end, message = _end(last), _message(last)
    if end is AgentEnd.CRASHED and _unserved(last):
        raise EngineUnavailable(f"Claude Code gave up: {message}")
    return HarnessResult(end, message, details)


def _end(last: Mapping[str, Any]) -> AgentEnd:
    if last.get("terminal_reason") in _REASONS:
        return _REASONS[last["terminal_reason"]]
    if last.get("subtype") == "error_max_turns":
        return AgentEnd.TURN_BUDGET
    if not last.get("is_error"):
        return AgentEnd.FINISHED
    message = _message(last)
    if refused := _REFUSED.search(message):
        return _BUDGETS[refused[1]]
    return AgentEnd.TOKEN_BUDGET if _CUT.search(message) else AgentEnd.CRASHED


def _unserved(last: Mapping[str, Any]) -> bool:
    """Whether its last request failed on the gateway's side."""
    status = last.get("api_error_status")
    return last.get("terminal_reason") == "api_error" and (status is None or status == 429 or status >= 500)


def _message(last: Mapping[str, Any]) -> str:
    errors = last.get("errors")
    said = last.get("result") or ("; ".join(map(str, errors)) if isinstance(errors, list) else "")
    return str(said)[:1000]


def _details(done: ExecResult, lines: list[dict[str, Any]], last: Mapping[str, Any]) -> dict[str, Any]:
    """What goes to the journal: the program's own account, and how many lines of each kind it wrote."""
    kinds = Counter(_kind(line) for line in lines)
    init = next((line for line in lines if line.get("subtype") == "init"), {})
    kept = {name: last[name] for name in _KEPT if name in last}
    return {
        "exit_code": done.exit_code,
        "version": init.get("claude_code_version", ""),
        "tools": init.get("tools", []),
        "lines": dict(kinds),
        **kept,
    }


def _kind(line: Mapping[str, Any]) -> str:
    return ".".join(str(line[key]) for key in ("type", "subtype") if line.get(key))


def _lines(output: bytes) -> Iterator[dict[str, Any]]:
    """The objects of the output. Its first line may be cut, and commands of the agent never write there."""
    for raw in output.splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
