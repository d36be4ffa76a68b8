"""One question to the gateway: an HTTP call in, a reply out, and budgets told apart from failures.

No retries here: the gateway owns them.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from agentrl.api import AgentEnd, EngineUnavailable, HarnessError, HarnessJob
from agentrl_mini_swe.prompts import Messages

_BUDGETS = {
    "turn": AgentEnd.TURN_BUDGET,
    "token": AgentEnd.TOKEN_BUDGET,
    "context": AgentEnd.CONTEXT_BUDGET,
    "time": AgentEnd.TIME_BUDGET,
}


class OutOfBudget(Exception):
    """The gateway refused another turn; ``end`` says which budget ran out."""

    def __init__(self, end: AgentEnd, message: str) -> None:
        self.end = end
        super().__init__(message)


async def ask(http: aiohttp.ClientSession, job: HarnessJob, messages: Messages) -> str:
    """The model's next message, verbatim. Raises: OutOfBudget, EngineUnavailable, HarnessError."""
    try:
        async with http.post(
            f"{job.base_url}/v1/chat/completions",
            json={"model": job.model, "messages": messages, "stream": False},
            headers={"Authorization": f"Bearer {job.api_key}"},
            timeout=aiohttp.ClientTimeout(total=job.turn_timeout_sec),
        ) as response:
            status, text = response.status, await response.text()
    except TimeoutError as error:
        raise EngineUnavailable(f"no reply from the gateway within {job.turn_timeout_sec:g} s") from error
    except aiohttp.ClientError as error:
        raise EngineUnavailable(f"the gateway at {job.base_url} cannot be reached: {error}") from error
    body = _object(text, status)
    if status != 200:
        raise _refusal(status, body)
    return _content(body)


def _object(text: str, status: int) -> dict[str, Any]:
    """The body as a JSON object; a proxy's error page becomes an object without fields."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    if status == 200:
        raise HarnessError(f"the gateway answered 200 without a JSON object: {text[:200]!r}")
    return {}


def _content(body: dict[str, Any]) -> str:
    try:
        return body["choices"][0]["message"]["content"] or ""
    except (KeyError, IndexError, TypeError) as error:
        raise HarnessError(f"the gateway's reply has no message: {str(body)[:200]}") from error


def _refusal(status: int, body: dict[str, Any]) -> Exception:
    """The exception for an answer that is not 200."""
    raw = body.get("error")
    error: dict[str, Any] = raw if isinstance(raw, dict) else {}
    code, message = error.get("code"), str(error.get("message") or f"HTTP {status}")
    if code == "context_length_exceeded":
        return OutOfBudget(AgentEnd.CONTEXT_BUDGET, message)
    if code == "budget_exhausted":
        return OutOfBudget(_which_budget(str(error.get("param") or ""), message), message)
    if status == 410:
        return OutOfBudget(AgentEnd.TIME_BUDGET, message)
    if status == 429 or status >= 500:
        return EngineUnavailable(f"the gateway answered {status}: {message}")
    return HarnessError(f"the gateway answered {status}: {message}")


def _which_budget(param: str, message: str) -> AgentEnd:
    """The budget named by ``param``, else by the first such word of ``message``, else time."""
    if param in _BUDGETS:
        return _BUDGETS[param]
    named = (_BUDGETS[word] for word in message.lower().split() if word in _BUDGETS)
    return next(named, AgentEnd.TIME_BUDGET)
