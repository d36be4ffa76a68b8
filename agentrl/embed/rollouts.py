"""Rollouts while somebody else's loop asks for them: the combination, checked and started, and one rollout after another."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.errors import PlanError, RowError
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.upstream import Upstream
from agentrl.grader import Grader
from agentrl.outcomes import RULES, ExitStatus
from agentrl.plugins import load_plugins
from agentrl.registry import Registry
from agentrl.rollout.assembly import Assembly, assemble
from agentrl.rollout.journal import FILE as JOURNAL
from agentrl.rollout.journal import encode
from agentrl.rollout.lines import Lines
from agentrl.rollout.one import RolloutId
from agentrl.rollout.plan import Plan, make_plan, remote_of
from agentrl.rollout.pool import with_retries
from agentrl.rollout.saved import save_plan
from agentrl.settings import PluginSettings, Resolved, Settings, environment, resolve, variables
from agentrl.tasks import TaskFormat
from agentrl.types import Message, Rollout, Task, Text, Trajectory

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_rollouts(
    overrides: Mapping[str, str],
    *,
    name: str,
    environ: Mapping[str, str] | None = None,
    called: Mapping[str, str] | None = None,
    foreign: re.Pattern[str] | None = None,
) -> AsyncIterator[Rollouts]:
    """Check the combination, start everything that rollouts need, and take it down at the end of the block.

    ``overrides``: variable → value, what the framework decides; ``environ``: everything else (None: the process environment).
    ``AGENTRL_ENGINE`` must be the URL of a running engine, or ``openai:URL`` where tokens are kept elsewhere; ``AGENTRL_MODEL`` is
    the folder of the tokenizer. ``name`` starts the name of the run's folder. ``called``: variable → what the framework calls it,
    for messages. ``foreign``: names that belong to the framework, dropped with a warning where no part knows them.

    Raises: PlanError that names every variable that is wrong; EngineError, SandboxRefused, OSError when something does not start.
    """
    plan = _plan(overrides, environment() if environ is None else environ, called or {}, foreign)
    directory = (plan.settings.run_dir / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}").resolve()
    save_plan(plan, directory)
    for note in plan.notes:
        log.warning("%s", note)
    async with AsyncExitStack() as stack:
        assembly = await stack.enter_async_context(assemble(plan, directory, tell=log.info))
        journal = Lines(directory / JOURNAL)
        stack.callback(journal.close)
        rollouts = Rollouts(assembly, journal, called or {})
        stack.push_async_callback(rollouts.abort_all)
        yield rollouts


class Rollouts:
    """Running parts, and the rollouts that use them. Use it inside the event loop in which it was opened."""

    def __init__(self, assembly: Assembly, journal: Lines, called: Mapping[str, str]) -> None:
        self._assembly, self._journal, self._called = assembly, journal, called
        self._room = asyncio.Semaphore(self.plan.settings.concurrency)
        self._running: set[asyncio.Task[Rollout]] = set()
        self._row_was_good = False

    @property
    def plan(self) -> Plan:
        """The checked combination."""
        return self._assembly.plan

    @property
    def journal(self) -> Path:
        """The record of all rollouts so far, for ``agentrl verify``."""
        return self._journal.path

    async def run(
        self,
        row: Mapping[str, Any],
        rollout_id: RolloutId,
        *,
        evaluation: bool = False,
        sampling: SamplingPolicy | None = None,
        upstream: str = "",
        pinned: Mapping[str, Any] | None = None,
    ) -> Rollout:
        """One rollout of the task in ``row``, boot to grade. ``reward`` is None when there is no verdict.

        ``evaluation``: by the evaluation's protocol. ``sampling``: in place of the run's. ``upstream``: ``openai:URL`` of the model
        that answers this rollout, where the engine is one of those; ``pinned``: the parameters that go with each of its requests.

        Raises: RowError for a row that is no task, that cannot be graded, or that is too long; PlanError instead as long as
        no row was good, for then it is not the row that is wrong.
        """
        parts = self.plan.parts
        task_format, grader = parts.eval_protocol if evaluation else (parts.task_format, parts.grader)
        with self._refusing():
            task = _task(row, task_format, grader)
        async with AsyncExitStack() as stack:
            chosen = replace(
                self._assembly.parts,
                task_format=task_format,
                grader=grader,
                sampling=sampling,
                upstream=await self._upstream(upstream, pinned or {}, stack),
            )
            run_one = partial(Assembly.run_one, replace(self._assembly, parts=chosen))
            return await self._until_aborted(task, rollout_id, partial(with_retries, task, rollout_id, run_one))

    async def abort_all(self) -> int:
        """End all running rollouts and wait until their machines are gone; they end as ``cancelled``. How many there were."""
        running = [*self._running]
        for rollout in running:
            rollout.cancel()
        if running:
            await asyncio.wait(running)
        return len(running)

    def sampling(self, params: Mapping[str, Any]) -> SamplingPolicy:
        """How one rollout samples: ``temperature``, ``top_p``, ``top_k`` and ``max_new_tokens``; the run's where absent or None."""

        def asked(name: str) -> Any:
            value = params.get(name)
            return getattr(self.plan.settings, name) if value is None else value

        return SamplingPolicy(
            temperature=float(asked("temperature")),
            top_p=float(asked("top_p")),
            top_k=int(asked("top_k")),
            max_new_tokens=int(asked("max_new_tokens")),
        )

    def spell(self, ids: Sequence[int]) -> str:
        """Token ids as text, for people. Empty without a tokenizer."""
        codec = self._assembly.codec
        return "" if codec is None else codec.spell(ids)

    async def _until_aborted(
        self, task: Task, rollout_id: RolloutId, work: Callable[[], Awaitable[Rollout]]
    ) -> Rollout:
        running = asyncio.create_task(self._in_turn(task, work))
        self._running.add(running)
        try:
            rollout = await running
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            rollout = _cancelled(task, rollout_id)
        finally:
            self._running.discard(running)
        self._journal.append(encode(rollout))
        self.plan.plugins.announce("agentrl_rollout_finished", rollout=rollout)
        return rollout

    async def _in_turn(self, task: Task, work: Callable[[], Awaitable[Rollout]]) -> Rollout:
        with self._refusing():
            await self._fits(task)
        self._row_was_good = True
        async with self._room:
            return await work()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """As long as no row was good, it is not the row that is wrong."""
        try:
            yield
        except RowError as error:
            if self._row_was_good:
                raise
            raise PlanError([_renamed(str(error), self._called)]) from error

    async def _fits(self, task: Task) -> None:
        codec, limit = self._assembly.codec, self.plan.settings.context_tokens
        if codec is None:
            return
        question = (Message("user", (Text(task.problem),)),)
        length = len((await asyncio.to_thread(codec.render, question, ())).ids)
        if length >= limit - 1:
            raise RowError(
                f"SWE_CONTEXT_TOKENS ({limit}) has no room for task {task.id}: its problem has {length} tokens"
            )

    async def _upstream(self, engine: str, pinned: Mapping[str, Any], stack: AsyncExitStack) -> Upstream | None:
        if not engine:
            return None
        remote, settings = remote_of(engine), self.plan.settings
        if remote is None:
            raise PlanError([f"{engine} is no model behind an API: it must look like openai:http://host/v1"])
        model, timeout_sec = settings.remote_model, settings.turn_timeout_sec
        upstream = Upstream(*remote, model=model, key="", timeout_sec=timeout_sec, pinned=pinned)
        stack.push_async_callback(upstream.aclose)
        return upstream


def _plan(
    overrides: Mapping[str, str], environ: Mapping[str, str], called: Mapping[str, str], foreign: re.Pattern[str] | None
) -> Plan:
    resolved = resolve(environ, overrides)
    registry = load_plugins(resolved).registry
    unknown = _unknown(resolved, registry, foreign) if foreign else frozenset()
    if unknown:
        log.warning("of no use here, and ignored: %s", ", ".join(sorted(unknown)))
    machines = _machines_with_credentials(resolved, registry)
    kept = {name: value for name, value in environ.items() if name not in unknown}
    resolved = resolve(kept, {**overrides, **({"SWE_SANDBOX": machines} if machines else {})})
    plan = make_plan(resolved, load_plugins(resolved), purpose="embed")
    if plan.problems:
        raise PlanError([_renamed(problem, called) for problem in plan.problems])
    return plan


def _unknown(resolved: Resolved, registry: Registry, foreign: re.Pattern[str]) -> frozenset[str]:
    """The framework's variables that no setting of ours has."""
    classes: tuple[type[PluginSettings], ...] = (Settings, *registry.settings_classes())
    known = {spelling for cls in classes for variable in variables(cls) for spelling in variable.spellings}
    return frozenset(name for name in resolved.values if foreign.fullmatch(name) and name not in known)


def _machines_with_credentials(resolved: Resolved, registry: Registry) -> str:
    """Where ``SWE_SANDBOX`` is not set: the one backend for which there are credentials, or nothing.

    Launch scripts that know one provider only never say its name, but they do carry its key.
    """
    if "SWE_SANDBOX" in resolved.values:
        return ""
    having = {
        offer.name
        for offer in registry.offers("sandboxes")
        if (cls := registry.settings_class(offer)) is not None
        and any(variable.secret and resolved.values.keys() & set(variable.spellings) for variable in variables(cls))
    }
    return having.pop() if len(having) == 1 else ""


def _task(row: Mapping[str, Any], task_format: TaskFormat, grader: Grader) -> Task:
    task = task_format.read(row)
    if reason := grader.check(task):
        raise RowError(f"task {task.id} cannot be graded: {reason}")
    return task


def _renamed(problem: str, called: Mapping[str, str]) -> str:
    for variable, words in called.items():
        problem = problem.replace(variable, f"{variable} ({words})")
    return problem


def _cancelled(task: Task, rollout_id: RolloutId) -> Rollout:
    status = ExitStatus.CANCELLED
    return Rollout(
        id=str(rollout_id),
        group_id=rollout_id.group_id,
        task_id=task.id,
        level=task.level,
        iteration=rollout_id.iteration,
        outcome=RULES[status].outcome,
        exit_status=status,
        agent_end=None,
        reward=None,
        grade=None,
        samples=(),
        trajectory=Trajectory(()),
        seconds={},
        message="all rollouts were aborted",
    )
