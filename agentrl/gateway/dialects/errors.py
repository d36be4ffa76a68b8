"""Which HTTP status each of our errors is, in every API alike: nothing of ours is a 400, nothing of the client's a 500."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.errors import (
    BadRequest,
    BudgetExhausted,
    ContextOverflow,
    EngineUnavailable,
    SessionClosed,
    TemplateError,
    Unauthorized,
)

RETRY_AFTER_SEC = 2
_OPENAI: Mapping[str, tuple[int, str, str | None]] = {
    "bad_request": (400, "invalid_request_error", None),
    "unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "closed": (410, "invalid_request_error", "session_closed"),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "budget": (429, "budget_exhausted", "budget_exhausted"),
    "overloaded": (503, "server_error", "engine_overloaded"),
    "internal": (500, "server_error", None),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind``: ``bad_request``, ``unauthorized``, ``closed``, ``context``, ``budget``, ``overloaded`` or ``internal``.
    ``budget``: which one ran out."""

    kind: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    budget: str = ""


def judge(error: Exception) -> Verdict:
    """Classify ``error``. What is not ours to show (a bug) is told without its details."""
    # The official SDKs obey this header: what can never succeed is not asked again.
    final = {"x-should-retry": "false"}
    match error:
        case BudgetExhausted():
            return Verdict("budget", f"{error.budget} budget exhausted: {error}", final, error.budget)
        case ContextOverflow():
            return Verdict("context", str(error), final)
        case SessionClosed():
            return Verdict("closed", str(error), final)
        case Unauthorized():
            return Verdict("unauthorized", str(error), final)
        case BadRequest() | TemplateError():
            return Verdict("bad_request", str(error), final)
        case EngineUnavailable():
            return Verdict("overloaded", str(error), {"retry-after": str(RETRY_AFTER_SEC)})
    return Verdict("internal", f"internal error of the gateway ({type(error).__name__}); its log says more")


def openai_error(error: Exception) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """(HTTP status, JSON body, extra headers) in the shape that OpenAI's APIs share; ``param`` names an exhausted budget."""
    verdict = judge(error)
    status, kind, code = _OPENAI[verdict.kind]
    body = {"message": verdict.message, "type": kind, "param": verdict.budget or None, "code": code}
    return status, {"error": body}, verdict.headers
