"""One rollout, boot to grade. The boundary where every exception becomes an outcome.

The order is the contract: the agent's processes are dead and its machine is gone before grading starts in a fresh one;
a rollout that cannot be graded has no reward.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from agentrl.errors import (
    EngineError,
    GraderError,
    HarnessError,
    ImageUnavailable,
    PatchError,
    PatchTooLarge,
    SandboxError,
    SandboxGone,
)
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.relay import RELAYED
from agentrl.gateway.server import Gateway
from agentrl.gateway.session import Budgets, Session
from agentrl.gateway.upstream import Upstream
from agentrl.grader import Grader
from agentrl.harness import Harness, HarnessJob, HarnessResult
from agentrl.lease import Lease
from agentrl.outcomes import RULES, TRUNCATIONS, AgentEnd, ExitStatus
from agentrl.relay import base_url, way_to_gateway
from agentrl.rollout.rewards import reward_of
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.settings import Settings
from agentrl.tasks import TaskFormat
from agentrl.tokens.samples import samples_from
from agentrl.types import Grade, Rollout, Sample, SandboxSpec, Submission, Task, Trajectory

_log = logging.getLogger(__name__)

_NOTHING = Trajectory(())

AGENT_SLACK_SEC = 5.0
"""A harness ends by itself when its time budget is over; it is cancelled this much later."""
PATIENT_SHARE = 0.9
"""How much of the time that a rollout has left it waits for a sandbox: then it can still say what it was waiting for."""


@dataclass(frozen=True, slots=True)
class RolloutParts:
    """The chosen parts, ready for use. ``model_name`` is what agents are told to ask for; ``sampling`` and ``upstream`` are for
    rollouts that do not sample, or are not answered, like the others of their gateway."""

    settings: Settings
    backend: SandboxBackend
    lease: Lease
    harness: Harness
    task_format: TaskFormat
    grader: Grader
    gateway: Gateway
    model_name: str
    sampling: SamplingPolicy | None = None
    upstream: Upstream | None = None


@dataclass(frozen=True, slots=True)
class RolloutId:
    """Which rollout: its place in the run. ``str()`` is unique in a run."""

    iteration: int
    group: int
    member: int

    @property
    def group_id(self) -> str:
        """The group's name."""
        return f"i{self.iteration}-g{self.group}"

    def __str__(self) -> str:
        return f"{self.group_id}-r{self.member}"


def agent_spec(task: Task, parts: RolloutParts) -> SandboxSpec:
    """The sandbox that an agent works in: the task's own with the agent baked in; it reaches the gateway, unless a relay comes to it."""
    way = way_to_gateway(parts.settings, parts.backend.capabilities)
    reach = () if way == "relay" else (parts.gateway.port,)
    return replace(task.machine, layers=(*task.layers, *parts.harness.layers()), reach=reach)


async def run_rollout(task: Task, rollout_id: RolloutId, parts: RolloutParts, *, attempt: int = 1) -> Rollout:
    """Make one attempt. Always returns a rollout; only cancellation of the caller escapes."""
    return await _Attempt(task, rollout_id, parts, attempt).run()


@dataclass(slots=True)
class _Attempt:
    """What is known so far of an attempt: when something fails, this is what the record is made from."""

    task: Task
    rollout_id: RolloutId
    parts: RolloutParts
    attempt: int
    deadline: float = 0.0
    phase: str = "boot"
    seconds: dict[str, float] = field(default_factory=dict)
    trajectory: Trajectory = _NOTHING
    end: AgentEnd | None = None
    grade: Grade | None = None
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    async def run(self) -> Rollout:
        started, guard_sec = time.monotonic(), self.parts.settings.rollout_guard_sec
        self.deadline = started + guard_sec
        guard = asyncio.timeout(guard_sec)
        try:
            async with guard:
                status = await self._work_and_grade()
        except Exception as error:  # noqa: BLE001  (boundary 1 of 3: the rollout)
            status = self._failed(error, guard_expired=guard.expired())
        self.seconds["total"] = time.monotonic() - started
        return self._record(status)

    def _failed(self, error: Exception, *, guard_expired: bool) -> ExitStatus:
        if guard_expired:
            self.message = f"SWE_ROLLOUT_GUARD_SEC ran out in phase {self.phase}"
            return ExitStatus.GUARD_EXPIRED
        self.message = f"{self.phase}: {type(error).__name__}: {error}"
        status = _status_of(error, self.phase)
        if status is ExitStatus.INTERNAL_ERROR:
            _log.error("rollout %s failed in phase %s", self.rollout_id, self.phase, exc_info=error)
        return status

    async def _work_and_grade(self) -> ExitStatus:
        submission = await self._work()
        if self.end is AgentEnd.CRASHED:
            return ExitStatus.AGENT_CRASHED
        if not (self.trajectory.turns or self.trajectory.counters.get(RELAYED)):
            self.message = self.message or "the agent ended without a single model call"
            return ExitStatus.NO_TURN
        if isinstance(submission, Grade):
            self.grade = submission
        else:
            with self._timed("grade"):
                timeout_sec = self.parts.settings.eval_timeout_sec
                grading = self.parts.grader.grade(self.task, submission, self._open, timeout_sec=timeout_sec)
                self.grade = _checked(await grading)
        return TRUNCATIONS.get(self.end, self.grade.exit_status) if self.end else self.grade.exit_status

    async def _work(self) -> Submission | Grade:
        """Everything that happens in the agent's sandbox. Work that no grader can use is already a verdict."""
        task, parts = self.task, self.parts
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._session())
            with self._timed("boot"):
                opening = self._open_spec(agent_spec(task, parts), urgent=False)
                sandbox = await stack.enter_async_context(opening)
            with self._timed("prepare"):
                prepared = await parts.task_format.prepare(sandbox, task)
                await parts.harness.install(sandbox)
            with self._timed("agent"):
                async with self._session_url(sandbox, session) as url:
                    result = await self._run_agent(sandbox, session, url)
                self.end, self.message = _end(result, session.exhausted), result.message
                self.details = _reported(result)
                self.trajectory = await parts.gateway.close_session(session)
            with self._timed("collect"):
                submission = await self._collect(parts.task_format.collect(sandbox, task, prepared))
        return submission

    @staticmethod
    async def _collect(collecting: Awaitable[Submission]) -> Submission | Grade:
        try:
            return await collecting
        except PatchTooLarge as error:
            return Grade(0.0, ExitStatus.PATCH_TOO_LARGE, {"error": _text(str(error))})
        except PatchError as error:
            return Grade(0.0, ExitStatus.WORK_UNREADABLE, {"error": _text(str(error))})

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        """A session that is closed, and whose trajectory is kept, however the work ends."""
        settings = self.parts.settings
        budgets = Budgets(max_turns=settings.max_turns, max_tokens=settings.max_rollout_tokens)
        parts = self.parts
        session = parts.gateway.open_session(
            str(self.rollout_id), budgets, sampling=parts.sampling, upstream=parts.upstream
        )
        try:
            yield session
        finally:
            self.trajectory = await asyncio.shield(self.parts.gateway.close_session(session))

    def _open(self) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox to grade in. Nobody who has not begun yet is served before a rollout that is nearly done."""
        return self._open_spec(replace(self.task.machine, layers=self.task.layers), urgent=True)

    def _open_spec(self, spec: SandboxSpec, *, urgent: bool) -> AbstractAsyncContextManager[Sandbox]:
        """A leased sandbox that outlives this rollout by no more than what the settings allow."""
        settings, left_sec = self.parts.settings, self.deadline - time.monotonic()
        return self.parts.lease.open(
            spec,
            rollout_id=str(self.rollout_id),
            lifetime_sec=left_sec + settings.sandbox_lifetime_sec - settings.rollout_guard_sec,
            patience_sec=PATIENT_SHARE * left_sec,
            urgent=urgent,
        )

    @asynccontextmanager
    async def _session_url(self, sandbox: Sandbox, session: Session) -> AsyncIterator[str]:
        """The session's root as the harness must spell it."""
        parts, root = self.parts, session.url("")
        if parts.harness.runs_in == "host":
            yield parts.gateway.url + root
            return
        can = parts.backend.capabilities
        async with base_url(sandbox, parts.settings, can, port=parts.gateway.port, root=root) as address:
            yield address + root

    async def _run_agent(self, sandbox: Sandbox, session: Session, url: str) -> HarnessResult:
        job = self._job(session, url)
        limit = asyncio.timeout(job.time_budget_sec + AGENT_SLACK_SEC)
        try:
            async with limit:
                return await self.parts.harness.run(sandbox, job)
        except TimeoutError:
            if not limit.expired():
                raise
            return HarnessResult(AgentEnd.TIME_BUDGET, "cancelled at the end of its time budget")

    def _job(self, session: Session, url: str) -> HarnessJob:
        settings = self.parts.settings
        return HarnessJob(
            rollout_id=str(self.rollout_id),
            problem=self.task.problem,
            workdir=self.task.workdir,
            base_url=url,
            api_key=session.token,
            model=self.parts.model_name,
            max_turns=settings.max_turns,
            time_budget_sec=settings.agent_time_budget_sec,
            turn_timeout_sec=settings.turn_timeout_sec,
            context_tokens=settings.context_tokens,
        )

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self.phase, start = phase, time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = time.monotonic() - start

    def _record(self, status: ExitStatus) -> Rollout:
        valid = self.grade is not None and RULES[status].has_reward
        reward = reward_of(self.grade, self.parts.settings.reward) if self.grade and valid else None
        return Rollout(
            id=str(self.rollout_id),
            group_id=self.rollout_id.group_id,
            task_id=self.task.id,
            level=self.task.level,
            iteration=self.rollout_id.iteration,
            outcome=RULES[status].outcome,
            exit_status=status,
            agent_end=self.end,
            reward=reward,
            grade=self.grade,
            samples=() if reward is None else self._samples(reward),
            trajectory=self.trajectory,
            seconds=self.seconds,
            message=_text(self.message),
            attempt=self.attempt,
            details=self.details,
        )

    def _samples(self, reward: float) -> tuple[Sample, ...]:
        limit = self.parts.settings.max_sample_tokens or self.parts.settings.context_tokens
        return samples_from(self.trajectory, rollout_id=str(self.rollout_id), reward=reward, max_tokens=limit)


_EXHAUSTED = {
    "turn": AgentEnd.TURN_BUDGET,
    "token": AgentEnd.TOKEN_BUDGET,
    "context": AgentEnd.CONTEXT_BUDGET,
    "time": AgentEnd.TIME_BUDGET,
}


def _reported(result: HarnessResult) -> Mapping[str, Any]:
    """The harness's details as they can be recorded. Raises: HarnessError when they cannot."""
    try:
        return dict(orjson.loads(orjson.dumps(dict(result.details))))
    except TypeError as error:
        raise HarnessError(f"the details of the harness's result are not JSON: {error}") from error


def _checked(grade: Grade) -> Grade:
    """The verdict as it can be rewarded and recorded. Raises: GraderError when it is none."""
    if not 0.0 <= grade.reward <= 1.0:
        raise GraderError(f"the grader's reward is {grade.reward}, which is not between 0 and 1")
    try:
        orjson.dumps(dict(grade.details))
    except TypeError as error:
        raise GraderError(f"the details of the grader's verdict are not JSON: {error}") from error
    return replace(grade, reward=float(grade.reward), restored=tuple(map(_text, grade.restored)))


def _text(words: str) -> str:
    """``words`` fit for a journal: names of files may hold bytes that are no text."""
    return words.encode(errors="replace").decode()


def _end(result: HarnessResult, exhausted: str) -> AgentEnd:
    """An agent that gave up because the gateway refused its last turn ran out of that budget, whatever it says."""
    return _EXHAUSTED[exhausted] if exhausted else result.end


def _status_of(error: Exception, phase: str) -> ExitStatus:
    """Which ending an exception is; the phase decides where the class alone does not."""
    match error:
        case ImageUnavailable():
            return ExitStatus.IMAGE_UNAVAILABLE
        case SandboxGone():
            return ExitStatus.SANDBOX_LOST
        case SandboxError():
            return ExitStatus.SANDBOX_FAILED
        case EngineError():
            return ExitStatus.ENGINE_FAILED
        case HarnessError():
            return ExitStatus.AGENT_CRASHED
        case GraderError() | PatchError():
            return ExitStatus.TASK_INVALID if phase == "prepare" else ExitStatus.GRADER_FAILED
    return ExitStatus.INTERNAL_ERROR
