"""How a rollout ends: one closed vocabulary and the one table that decides what follows from it.

- ``graded``: a grader gave a verdict; the reward may be 0.
- ``truncated``: a budget ran out and what was there got graded, so there is a reward too.
- ``aborted``: no verdict could be had: no reward, out of the batch, counted by cause.

Nothing else in the code decides whether an ending is retried, graded or rewarded.

Whose fault is work that cannot be collected? The start state was proved readable before the agent began, so a repository
that cannot be read afterwards (no ``.git``, objects gone, a pipe in the place of a file) is the policy's doing: graded, 0, as
``work_unreadable``. A machine that is gone, full or without an answer proves nothing about anybody: aborted. An agent that kills or
fills its machine on purpose gets no reward out of it, and what it costs shows in the counters by cause.
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
    WORK_UNREADABLE = "work_unreadable"
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
    """What follows from an exit status. ``retried``: worth another attempt at the same rollout. ``meaning``: for people."""

    outcome: Outcome
    cause: Cause
    meaning: str
    retried: bool = False

    @property
    def has_reward(self) -> bool:
        """Whether there is a grade, and a reward of such a rollout is valid."""
        return self.outcome is not Outcome.ABORTED


_G, _T, _A = Outcome.GRADED, Outcome.TRUNCATED, Outcome.ABORTED

RULES: dict[ExitStatus, Rule] = {
    ExitStatus.SOLVED: Rule(_G, "policy", "the tests pass"),
    ExitStatus.UNSOLVED: Rule(_G, "policy", "the tests fail"),
    ExitStatus.EMPTY_PATCH: Rule(_G, "policy", "nothing was changed"),
    ExitStatus.PATCH_REJECTED: Rule(_G, "policy", "the patch does not apply"),
    ExitStatus.PATCH_TOO_LARGE: Rule(_G, "policy", "the patch is over the cap"),
    ExitStatus.WORK_UNREADABLE: Rule(_G, "policy", "the agent left a repository that cannot be read"),
    ExitStatus.TESTS_TIMED_OUT: Rule(_G, "policy", "the tests ran out of time under the patch"),
    ExitStatus.TURN_BUDGET: Rule(_T, "budget", "the turns were used up"),
    ExitStatus.TOKEN_BUDGET: Rule(_T, "budget", "the tokens were used up"),
    ExitStatus.CONTEXT_BUDGET: Rule(_T, "budget", "the context was full"),
    ExitStatus.TIME_BUDGET: Rule(_T, "budget", "the agent's time was over"),
    ExitStatus.AGENT_CRASHED: Rule(_A, "harness", "the agent program failed", retried=True),
    ExitStatus.NO_TURN: Rule(_A, "harness", "the agent ended without a model call", retried=True),
    ExitStatus.SANDBOX_FAILED: Rule(_A, "provider", "a machine could not be had or used", retried=True),
    ExitStatus.SANDBOX_LOST: Rule(_A, "sandbox", "a machine died", retried=True),
    ExitStatus.IMAGE_UNAVAILABLE: Rule(_A, "provider", "the image cannot be found or pulled"),
    ExitStatus.TASK_INVALID: Rule(_A, "task", "the task's start state cannot be made"),
    ExitStatus.ENGINE_FAILED: Rule(_A, "engine", "the engine failed or broke its protocol", retried=True),
    ExitStatus.GRADER_FAILED: Rule(_A, "grader", "the grader came to no verdict", retried=True),
    ExitStatus.GUARD_EXPIRED: Rule(_A, "budget", "the rollout as a whole took too long"),
    ExitStatus.CANCELLED: Rule(_A, "cancelled", "the run was stopped"),
    ExitStatus.INTERNAL_ERROR: Rule(_A, "internal", "a mistake of ours; the log has the traceback"),
}

TRUNCATIONS: dict[AgentEnd, ExitStatus] = {
    AgentEnd.TURN_BUDGET: ExitStatus.TURN_BUDGET,
    AgentEnd.TOKEN_BUDGET: ExitStatus.TOKEN_BUDGET,
    AgentEnd.CONTEXT_BUDGET: ExitStatus.CONTEXT_BUDGET,
    AgentEnd.TIME_BUDGET: ExitStatus.TIME_BUDGET,
}


def markdown_table() -> str:
    """:data:`RULES` for the documentation."""
    lines = [
        "| exit status | outcome | cause | retried | graded, reward valid | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for status, rule in RULES.items():
        retried, valid = ("yes" if flag else "no" for flag in (rule.retried, rule.has_reward))
        lines.append(f"| `{status}` | {rule.outcome} | {rule.cause} | {retried} | {valid} | {rule.meaning} |")
    return "\n".join(lines)
