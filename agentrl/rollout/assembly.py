"""The chosen parts, started and connected: engine, codec, gateway, lease. Taken down in reverse, whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agentrl.engine import EngineSpec
from agentrl.errors import PlanError, SandboxTransient
from agentrl.gateway.engine import SGLangEngine
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.memory import settle
from agentrl.gateway.relay import Relay
from agentrl.gateway.server import Gateway
from agentrl.gateway.upstream import Upstream
from agentrl.lease import Ledger, collect_garbage, make_lease
from agentrl.lease.ledger import FILE as LEDGER
from agentrl.registry import same_name
from agentrl.rollout.ahead import Ahead
from agentrl.rollout.one import RolloutId, RolloutParts, run_rollout
from agentrl.rollout.plan import Plan
from agentrl.settings import Settings
from agentrl.tokens import load_codec
from agentrl.tokens.codec import Codec
from agentrl.types import Rollout, Task, Turn

LOGS = "logs"

log = logging.getLogger(__name__)

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything that rollouts need, running."""

    plan: Plan
    parts: RolloutParts
    ahead: Ahead
    sampler: SGLangEngine | None
    codec: Codec | None = None

    @property
    def engine(self) -> SGLangEngine:
        """What samples tokens. Raises: PlanError when the model is only asked, through somebody else's API."""
        if self.sampler is None:
            raise PlanError([f"{self.plan.settings.engine} is no engine: it gives no tokens"])
        return self.sampler

    async def run_one(self, task: Task, rollout_id: RolloutId, attempt: int) -> Rollout:
        """One attempt, announced to plugins."""
        self.plan.plugins.announce(
            "agentrl_rollout_started",
            rollout_id=str(rollout_id),
            task_id=task.id,
            iteration=rollout_id.iteration,
        )
        return await run_rollout(task, rollout_id, self.parts, attempt=attempt)


@asynccontextmanager
async def assemble(plan: Plan, directory: Path, *, tell: Callable[[str], None]) -> AsyncIterator[Assembly]:
    """Start everything for ``plan``; logs and the ledger go to ``directory``. ``tell`` hears what is being waited for.

    Raises: UsageError, EngineError, SandboxRefused (the backend cannot make machines here), OSError (the port is taken).
    """
    settings, chosen = plan.settings, plan.parts
    async with AsyncExitStack() as stack:
        engine = None if plan.remote else await _start_engine(plan, directory, stack, tell)
        gateway = _relay(plan, stack) if engine is None else _gateway(plan, *engine)
        stack.push_async_callback(gateway.aclose)
        await gateway.start()
        settle()
        stack.push_async_callback(chosen.backend.aclose)
        lease = make_lease(
            chosen.backend,
            settings,
            run_id=directory.name,
            ledger=directory / LEDGER,
            warm_lifetime_sec=settings.sandbox_lifetime_sec,
        )
        stack.push_async_callback(lease.aclose)
        await _clean_up(plan, directory)
        parts = RolloutParts(
            settings=settings,
            backend=chosen.backend,
            lease=lease,
            harness=chosen.harness,
            task_format=chosen.task_format,
            grader=chosen.grader,
            gateway=gateway,
            model_name=settings.remote_model if engine is None else _model(settings).resolve().name,
        )
        codec, sampler = engine or (None, None)
        yield Assembly(plan, parts, Ahead(parts), sampler, codec)


async def _clean_up(plan: Plan, directory: Path) -> None:
    """Delete what an earlier process of this run left behind when it was killed. What cannot be deleted now, `agentrl gc` may later."""
    ledger = Ledger(directory / LEDGER, directory.name, same_name(plan.settings.sandbox))
    try:
        found = await collect_garbage(plan.parts.backend, runs=[directory.name], ledgers=[ledger])
    except SandboxTransient as error:
        log.warning("could not ask what an earlier process left behind: %s", error)
        return
    finally:
        ledger.close()
    for garbage in found:
        if garbage.error:
            log.warning("%s of an earlier process was not deleted: %s", garbage.id, garbage.error)


async def _start_engine(
    plan: Plan, directory: Path, stack: AsyncExitStack, tell: Callable[[str], None]
) -> tuple[Codec, SGLangEngine]:
    """The engine loads its weights in a process of its own, meanwhile the tokenizer loads in a thread."""
    settings = plan.settings
    tell(f"starting engine {settings.engine}")
    url, codec = await _both(_engine_url(plan, directory, stack), asyncio.to_thread(_codec, settings))
    engine = SGLangEngine(url, timeout_sec=settings.turn_timeout_sec)
    stack.push_async_callback(engine.aclose)
    await engine.health()
    return codec, engine


async def _both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Both results. Raises what the first one to fail raises; the other is cancelled and awaited."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(one), group.create_task(other)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return first.result(), second.result()


async def _engine_url(plan: Plan, directory: Path, stack: AsyncExitStack) -> str:
    if plan.engine_url:
        return plan.engine_url
    running = await plan.parts.engine_launcher.start(
        EngineSpec(
            model_dir=_model(plan.settings),
            context_tokens=plan.settings.context_tokens,
            dtype=plan.settings.dtype,
            seed=plan.settings.seed,
            log_path=directory / LOGS / "engine.log",
        )
    )
    stack.push_async_callback(running.aclose)
    return running.url


def _codec(settings: Settings) -> Codec:
    return load_codec(_model(settings), renderer=settings.renderer)


def _model(settings: Settings) -> Path:
    assert settings.model is not None, "a checked plan has a model"
    return settings.model


def _sampling(settings: Settings) -> SamplingPolicy:
    return SamplingPolicy(settings.temperature, settings.top_p, settings.top_k, settings.max_new_tokens)


def _relay(plan: Plan, stack: AsyncExitStack) -> Gateway:
    """In front of somebody else's model."""
    settings, chosen = plan.settings, plan.parts
    assert plan.remote is not None, "only a plan with a remote model is relayed"
    api, url = plan.remote
    upstream = Upstream(
        api, url, model=settings.remote_model, key=_key(settings), timeout_sec=settings.turn_timeout_sec
    )
    stack.push_async_callback(upstream.aclose)
    relay = Relay(upstream, _sampling(settings), chosen.middleware, settings.context_tokens, settings.turn_timeout_sec)
    return Gateway.relaying(relay, dialects=chosen.dialects, bind_host=settings.bind_host, port=settings.port.numbers)


def _key(settings: Settings) -> str:
    return settings.remote_api_key.get_secret_value() if settings.remote_api_key else ""


def _gateway(plan: Plan, codec: Codec, engine: SGLangEngine) -> Gateway:
    settings = plan.settings

    def on_turn(rollout_id: str, turn: Turn) -> None:
        plan.plugins.announce("agentrl_turn_recorded", rollout_id=rollout_id, turn=turn)

    return Gateway(
        codec=codec,
        engine=engine,
        sampling=_sampling(settings),
        dialects=plan.parts.dialects,
        middleware=plan.parts.middleware,
        bind_host=settings.bind_host,
        port=settings.port.numbers,
        idle_sec=settings.rollout_guard_sec,
        context_tokens=settings.context_tokens,
        turn_timeout_sec=settings.turn_timeout_sec,
        on_turn=on_turn,
    )
