"""Which HTTP status each of our errors is, in every API alike: nothing of ours is a 400, nothing of the client's a 500."""

from __future__ import annotations

from dataclasses import dataclass, field

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
