"""The agent program: a loop on the host over a sandbox, or a program that runs inside one.

A harness talks to the gateway over HTTP like any client, and knows nothing of graders, trainers or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agentrl.outcomes import AgentEnd
from agentrl.sandbox import Sandbox
from agentrl.types import Layer


@dataclass(frozen=True, slots=True)
class HarnessJob:
    """One assignment.

    ``base_url`` is the session's root on the gateway, without ``/v1``, as seen from where the harness's requests start
    (host or sandbox, see :attr:`Harness.runs_in`); ``api_key`` is the session's token. ``time_budget_sec`` counts from the
    call of :meth:`Harness.run`; the rollout enforces it from outside too. ``max_turns`` 0: no limit.
    """

    rollout_id: str
    problem: str
    workdir: str
    base_url: str
    api_key: str
    model: str
    max_turns: int
    time_budget_sec: float
    turn_timeout_sec: float
    context_tokens: int


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """How the agent ended. ``message`` is for people; ``details`` goes to the journal as it is."""

    end: AgentEnd
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


class Harness(Protocol):
    """An agent program."""

    @property
    def runs_in(self) -> Literal["host", "sandbox"]:
        """Where its requests to the gateway start."""
        ...

    def layers(self) -> Sequence[Layer]:
        """What to bake into the image, once per image and not per rollout."""
        ...

    async def install(self, sandbox: Sandbox) -> None:
        """Cheap per-rollout setup. Raises: HarnessError, SandboxError."""
        ...

    async def run(self, sandbox: Sandbox, job: HarnessJob) -> HarnessResult:
        """Work until done, out of budget, or cancelled. A gateway answer that says a budget ran out (HTTP 400
        context overflow, 429/410 with code ``budget_exhausted``) is a normal end. Raises: HarnessError, SandboxError, EngineUnavailable.
        """
        ...
