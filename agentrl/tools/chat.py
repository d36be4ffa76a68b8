"""One question to the gateway over the Chat Completions API, for harnesses whose loop runs on the host.

An HTTP call in, an answer out, budgets told apart from failures. No retries here: the gateway owns them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from agentrl.errors import AgentrlError, EngineUnavailable, HarnessError
from agentrl.harness import HarnessJob
from agentrl.outcomes import AgentEnd

ChatMessages = Sequence[dict[str, str]]
"""A conversation in the shape of the API: ``role`` and ``content``, and ``reasoning_content`` where there was some."""

_ENDS = {
    "turn": AgentEnd.TURN_BUDGET,
    "token": AgentEnd.TOKEN_BUDGET,
    "context": AgentEnd.CONTEXT_BUDGET,
    "time": AgentEnd.TIME_BUDGET,
}


class OutOfBudget(AgentrlError):
    """The gateway refused another turn; ``end`` says which budget ran out."""

    def __init__(self, end: AgentEnd, message: str) -> None:
        self.end = end
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The model's message, verbatim. ``finish``: ``stop``, ``length``, ``tool_calls``."""

    content: str
    reasoning: str
    finish: str

    def echo(self) -> dict[str, str]:
        """The message as it goes back into the conversation, unaltered."""
        message = {"role": "assistant", "content": self.content}
        return message | {"reasoning_content": self.reasoning} if self.reasoning else message


async def ask(http: aiohttp.ClientSession, job: HarnessJob, messages: ChatMessages) -> ChatAnswer:
    """The next message. Raises: OutOfBudget, EngineUnavailable, HarnessError (the gateway calls the request wrong)."""
    try:
        async with http.post(
            f"{job.base_url}/v1/chat/completions",
            json={"model": job.model, "messages": list(messages), "stream": False},
            headers={"Authorization": f"Bearer {job.api_key}"},
            timeout=aiohttp.ClientTimeout(total=job.turn_timeout_sec),
        ) as response:
            status, text = response.status, await response.text()
    except TimeoutError as error:
        raise EngineUnavailable(f"no reply from the gateway within {job.turn_timeout_sec:g} s") from error
    except aiohttp.ClientError as error:
        raise EngineUnavailable(f"the gateway cannot be reached: {type(error).__name__}") from error
    if status != 200:
        raise _refusal(status, text)
    return _answer(text)


def _answer(text: str) -> ChatAnswer:
    try:
        choice = json.loads(text)["choices"][0]
        message = choice["message"]
        return ChatAnswer(message["content"] or "", message.get("reasoning_content") or "", choice["finish_reason"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise HarnessError(f"the gateway's reply has no message: {text[:200]!r}") from error


def _refusal(status: int, text: str) -> AgentrlError:
    """The exception for an answer that is not 200."""
    error = _error(text)
    code, message = error.get("code"), str(error.get("message") or f"HTTP {status}")
    if code == "context_length_exceeded":
        return OutOfBudget(AgentEnd.CONTEXT_BUDGET, message)
    if code == "budget_exhausted":
        return OutOfBudget(_ENDS.get(str(error.get("param")), AgentEnd.TIME_BUDGET), message)
    if status == 410:
        return OutOfBudget(AgentEnd.TIME_BUDGET, message)
    if status == 429 or status >= 500:
        return EngineUnavailable(f"the gateway answered {status}: {message}")
    return HarnessError(f"the gateway answered {status}: {message}")


def _error(text: str) -> dict[str, Any]:
    """The API's error object; a proxy's page becomes an empty one."""
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
