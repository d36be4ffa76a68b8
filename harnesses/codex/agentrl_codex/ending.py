"""How the program ended: its last event, judged.

A failed turn says why in words only; the words are those of the pinned version, and what is not known is a crash.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.api import AgentEnd, EngineUnavailable, ExecResult, HarnessResult

_WORDS: Mapping[str, AgentEnd] = {
    "ran out of room in the model's context window": AgentEnd.CONTEXT_BUDGET,
    "reason: max_output_tokens": AgentEnd.TOKEN_BUDGET,
    # The gateway's 429 is always a budget; which one, its session knows.
    "last status: 429": AgentEnd.TURN_BUDGET,
    "status 410": AgentEnd.TIME_BUDGET,
}
_HIDDEN = "…"
_UNSERVED = ("status 502", "status 503", "status 504")


def judge(done: ExecResult, secret: str) -> HarnessResult:
    """How the agent ended. ``secret`` is kept out of every message: failures quote the session's URL.

    Raises: EngineUnavailable when it gave up because nobody sampled for it.
    """
    events = list(_events(done.stdout))
    last = next((e for e in reversed(events) if e.get("type") in ("turn.completed", "turn.failed")), None)
    details = _details(done, events, last or {})
    if done.timed_out:
        return HarnessResult(AgentEnd.TIME_BUDGET, "its time is over", details)
    if last is None:
        said = done.stderr[-1000:].decode(errors="replace").strip().replace(secret, _HIDDEN)
        return HarnessResult(AgentEnd.CRASHED, f"Codex ended with {done.exit_code} and no result: {said}", details)
    if last["type"] == "turn.completed":
        return HarnessResult(AgentEnd.FINISHED, _last_words(events), details)
    message = _failure(last).replace(secret, _HIDDEN)
    if any(words in message for words in _UNSERVED):
        raise EngineUnavailable(f"Codex gave up: {message}")
    end = next((end for words, end in _WORDS.items() if words in message), AgentEnd.CRASHED)
    return HarnessResult(end, message, details)


def _failure(event: Mapping[str, Any]) -> str:
    error = event.get("error")
    return str(error.get("message", error) if isinstance(error, dict) else error)[:1000]


def _last_words(events: list[dict[str, Any]]) -> str:
    said = (item.get("text", "") for item in _items(reversed(events)) if item.get("type") == "agent_message")
    return str(next(said, ""))[:1000]


def _details(done: ExecResult, events: list[dict[str, Any]], last: Mapping[str, Any]) -> dict[str, Any]:
    """What goes to the journal: the program's own account, and how many items of each kind it completed."""
    kinds = Counter(str(item.get("type")) for item in _items(events))
    retries = sum(e.get("type") == "error" and str(e.get("message", "")).startswith("Reconnecting") for e in events)
    usage = {"usage": last["usage"]} if "usage" in last else {}
    return {"exit_code": done.exit_code, "items": dict(kinds), "retries": retries, **usage}


def _items(events: Any) -> Iterator[Mapping[str, Any]]:
    """The completed items of the events."""
    for event in events:
        item = event.get("item")
        if event.get("type") == "item.completed" and isinstance(item, dict):
            yield item


def _events(output: bytes) -> Iterator[dict[str, Any]]:
    """The objects of the output. Its first line may be cut, and commands of the agent never write there."""
    for raw in output.splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
