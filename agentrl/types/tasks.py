"""What is worked on: tasks, submissions, grades, and rollouts as they are journalled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.outcomes import AgentEnd, ExitStatus, Outcome
from agentrl.types.machines import Layer, Resources, SandboxSpec
from agentrl.types.turns import Sample, Trajectory


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. ``problem`` is what the agent is asked, in words. ``level`` groups tasks in the metrics. ``layers``:
    what the task adds to its image, and ``env`` to the environment of its sandboxes.

    ``metadata`` belongs to the task format and grader that read it; nobody else looks inside.
    """

    id: str
    protocol: str
    problem: str
    workdir: str
    image: str | None = None
    resources: Resources = field(default_factory=Resources)
    level: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> SandboxSpec:
        """The sandbox that the task asks for."""
        return SandboxSpec(image=self.image, resources=self.resources, env=self.env, layers=self.layers)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the host learnt while preparing a sandbox, before the agent started (``base_commit``: full hex id or empty)."""

    base_commit: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """What is graded: the patch against ``base_commit``, byte for byte, and named artefacts."""

    base_commit: str
    patch: bytes
    artefacts: Mapping[str, bytes] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict: ``reward`` is finite, in [0, 1]. ``restored``: files put back from the task before the tests ran.

    ``details`` is JSON for people, but for two keys: ``partial``, the share in [0, 1] of what was asked for that works (0 when
    something broke), and ``broken``, the tests that passed before the task and fail now.
    """

    reward: float
    exit_status: ExitStatus
    details: Mapping[str, Any] = field(default_factory=dict)
    restored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt, boot to grade, as it is journalled.

    ``reward`` is None exactly when ``outcome`` is ``aborted`` (no grade, no reward). ``samples`` is empty then.
    ``seconds``: phase → duration; phases that did not happen are absent. ``details``: what the harness reported.
    """

    id: str
    group_id: str
    task_id: str
    level: str
    iteration: int
    outcome: Outcome
    exit_status: ExitStatus
    agent_end: AgentEnd | None
    reward: float | None
    grade: Grade | None
    samples: tuple[Sample, ...]
    trajectory: Trajectory
    seconds: Mapping[str, float]
    message: str = ""
    attempt: int = 1
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task in one iteration. Aborted ones stay in it, without reward."""

    id: str
    task_id: str
    rollouts: tuple[Rollout, ...]

    @property
    def graded(self) -> Sequence[Rollout]:
        """The rollouts that have a reward."""
        return [r for r in self.rollouts if r.reward is not None]
