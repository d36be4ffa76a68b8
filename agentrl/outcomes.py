"""How a rollout ends: one closed vocabulary and the one table that decides what follows from it.

``graded``    a grader gave a verdict; the reward may be 0.
``truncated`` a budget ran out; graded when there was something to grade, so there is a reward too.
``aborted``   no verdict could be had: no reward, out of the batch, counted by cause.

Nothing else in the code decides whether an ending is retried, graded or rewarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Outcome(StrEnum):
    """The three ways."""

    GRADED = "graded"
    TRUNCATED = "truncated"
    ABORTED = "aborted"


class AgentEnd(StrEnum):
    """Why the agent stopped working, as its harness saw it."""

    FINISHED = "finished"
    TURN_BUDGET = "turn_budget"
    TOKEN_BUDGET = "token_budget"
    CONTEXT_BUDGET = "context_budget"
    TIME_BUDGET = "time_budget"
    CRASHED = "crashed"


class ExitStatus(StrEnum):
    """Exactly one for each rollout."""

    SOLVED = "solved"
    UNSOLVED = "unsolved"
    EMPTY_PATCH = "empty_patch"
    PATCH_REJECTED = "patch_rejected"
    PATCH_TOO_LARGE = "patch_too_large"
    TESTS_TIMED_OUT = "tests_timed_out"
    TURN_BUDGET = "turn_budget"
    TOKEN_BUDGET = "token_budget"
    CONTEXT_BUDGET = "context_budget"
    TIME_BUDGET = "time_budget"
    AGENT_CRASHED = "agent_crashed"
    NO_TURN = "no_turn"
    SANDBOX_FAILED = "sandbox_failed"
    SANDBOX_LOST = "sandbox_lost"
    IMAGE_UNAVAILABLE = "image_unavailable"
    TASK_INVALID = "task_invalid"
    ENGINE_FAILED = "engine_failed"
    GRADER_FAILED = "grader_failed"
    GUARD_EXPIRED = "guard_expired"
    CANCELLED = "cancelled"
    INTERNAL_ERROR = "internal_error"


Cause = Literal[
    "policy", "budget", "harness", "sandbox", "provider", "task", "engine", "grader", "cancelled", "internal"
]


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows from an exit status. ``retried``: worth another attempt at the same rollout."""

    outcome: Outcome
    cause: Cause
    retried: bool = False

    @property
    def has_reward(self) -> bool:
        """Whether a reward of such a rollout is valid."""
        return self.outcome is not Outcome.ABORTED


_G, _T, _A = Outcome.GRADED, Outcome.TRUNCATED, Outcome.ABORTED

RULES: dict[ExitStatus, Rule] = {
    ExitStatus.SOLVED: Rule(_G, "policy"),
    ExitStatus.UNSOLVED: Rule(_G, "policy"),
    ExitStatus.EMPTY_PATCH: Rule(_G, "policy"),
    ExitStatus.PATCH_REJECTED: Rule(_G, "policy"),
    ExitStatus.PATCH_TOO_LARGE: Rule(_G, "policy"),
    ExitStatus.TESTS_TIMED_OUT: Rule(_G, "policy"),
    ExitStatus.TURN_BUDGET: Rule(_T, "budget"),
    ExitStatus.TOKEN_BUDGET: Rule(_T, "budget"),
    ExitStatus.CONTEXT_BUDGET: Rule(_T, "budget"),
    ExitStatus.TIME_BUDGET: Rule(_T, "budget"),
    ExitStatus.AGENT_CRASHED: Rule(_A, "harness", retried=True),
    ExitStatus.NO_TURN: Rule(_A, "harness", retried=True),
    ExitStatus.SANDBOX_FAILED: Rule(_A, "provider", retried=True),
    ExitStatus.SANDBOX_LOST: Rule(_A, "sandbox", retried=True),
    ExitStatus.IMAGE_UNAVAILABLE: Rule(_A, "provider"),
    ExitStatus.TASK_INVALID: Rule(_A, "task"),
    ExitStatus.ENGINE_FAILED: Rule(_A, "engine", retried=True),
    ExitStatus.GRADER_FAILED: Rule(_A, "grader", retried=True),
    ExitStatus.GUARD_EXPIRED: Rule(_A, "budget"),
    ExitStatus.CANCELLED: Rule(_A, "cancelled"),
    ExitStatus.INTERNAL_ERROR: Rule(_A, "internal"),
}

TRUNCATIONS: dict[AgentEnd, ExitStatus] = {
    AgentEnd.TURN_BUDGET: ExitStatus.TURN_BUDGET,
    AgentEnd.TOKEN_BUDGET: ExitStatus.TOKEN_BUDGET,
    AgentEnd.CONTEXT_BUDGET: ExitStatus.CONTEXT_BUDGET,
    AgentEnd.TIME_BUDGET: ExitStatus.TIME_BUDGET,
}
