"""Rollouts with real parts: sandboxes, gateway, grader and agent are real, the model says what a test wants."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from repair import repair_row, saying
from tiny_model import Speller, tiny_model

from agentrl.api import Grader, Harness, Rollout, Sandbox, SandboxBackend, Task
from agentrl.gateway.dialects.openai_chat import OpenAIChat
from agentrl.gateway.engine import SGLangEngine
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.server import Gateway
from agentrl.lease import Lease, Ledger
from agentrl.rollout.journal import decode, encode
from agentrl.rollout.one import RolloutId, RolloutParts, run_rollout
from agentrl.rollout.verify import verify
from agentrl.settings import resolve
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl.tokens import load_codec
from agentrl_local.records import read_record
from agentrl_mini_swe.harness import MiniSwe
from agentrl_mini_swe.settings import MiniSweSettings
from agentrl_scaleswe.grader import ScaleSweGrader
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.tasks import ScaleSweFormat

PATIENCE_SEC = 60


class Watched:
    """The backend, with a queue of what it made (the agent's machine first, then the grader's), and whether it was asked."""

    def __init__(self, backend: SandboxBackend) -> None:
        self._backend = backend
        self.made: asyncio.Queue[Sandbox] = asyncio.Queue()
        self.asked = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def create(self, *args: Any, **options: Any) -> Sandbox:
        self.asked.set()
        sandbox = await self._backend.create(*args, **options)
        self.made.put_nowait(sandbox)
        return sandbox


@dataclass
class Bench:
    """Running parts. ``model`` is the scripted engine, ``machines`` what was booted."""

    parts: RolloutParts
    model: ScriptedEngine
    machines: Watched
    ledger: Ledger
    state: Path

    async def roll(self, row: dict[str, Any] | None = None, *, member: int = 0, attempt: int = 1) -> Rollout:
        """One rollout; whatever became of it, its record is proved and survives the journal."""
        task = self.parts.task_format.read(row or repair_row())
        return await self.run_one(task, RolloutId(0, 0, member), attempt)

    async def run_one(self, task: Task, rollout_id: RolloutId, attempt: int) -> Rollout:
        """As the pool calls it."""
        rollout = await run_rollout(task, rollout_id, self.parts, attempt=attempt)
        verify([rollout])
        assert decode(orjson.loads(orjson.dumps(encode(rollout)))) == rollout
        return rollout

    async def when_started(self) -> Sandbox:
        """The next machine that was booted, once a command in it has made ``/tmp/started``."""
        sandbox = await asyncio.wait_for(self.machines.made.get(), PATIENCE_SEC)
        seen = await sandbox.exec("until test -e /tmp/started; do sleep 0.02; done", timeout_sec=PATIENCE_SEC)
        assert seen.ok, "nothing started there"
        return sandbox

    def kill(self, sandbox: Sandbox) -> None:
        """What an out-of-memory killer would do to the machine."""
        record = read_record(self.state / "sandboxes" / sandbox.id)
        assert record is not None
        os.kill(record.pid, signal.SIGKILL)

    async def sessions(self) -> int:
        """How many sessions the gateway serves."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.parts.gateway.url}/health") as answer:
            return int((await answer.json())["sessions"])


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model."""
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def codec(model_dir: Path) -> Any:
    """Its codec; loading the tokenizer library takes seconds."""
    return load_codec(model_dir)


OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]


@pytest.fixture
def bench(model_dir: Path, codec: Any, local_backend: SandboxBackend, local_state: Path, tmp_path: Path) -> OpenBench:
    """``async with bench(replies, harness=…, grader=…, VARIABLE=…)``. However a rollout ends, no machine and no session is left."""
    speller = Speller(model_dir)

    @asynccontextmanager
    async def opened(
        replies: Sequence[str], *, harness: Harness | None = None, grader: Grader | None = None, **variables: str
    ) -> AsyncIterator[Bench]:
        resolved = resolve({"SWE_MINI_DEMONSTRATION": "false", "SWE_CONTEXT_TOKENS": "4000", **variables})
        settings, machines = resolved.settings, Watched(local_backend)
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(ScriptedEngine(saying(speller, replies)))
            engine = SGLangEngine(model.url, timeout_sec=settings.turn_timeout_sec)
            stack.push_async_callback(engine.aclose)
            gateway = Gateway(
                codec=codec,
                engine=engine,
                sampling=SamplingPolicy(max_new_tokens=settings.max_new_tokens),
                dialects=(OpenAIChat(),),
                context_tokens=settings.context_tokens,
                turn_timeout_sec=settings.turn_timeout_sec,
            )
            await gateway.start()
            stack.push_async_callback(gateway.aclose)
            lease = Lease(machines, run_id="test", ledger=tmp_path / "ledger.jsonl")
            parts = RolloutParts(
                settings=settings,
                backend=machines,
                lease=lease,
                harness=harness or MiniSwe(resolved.read(MiniSweSettings)),
                task_format=ScaleSweFormat(resolved.read(ScaleSweSettings)),
                grader=grader or ScaleSweGrader(resolved.read(ScaleSweSettings)),
                gateway=gateway,
                model_name="tiny",
            )
            made = Bench(parts, model, machines, Ledger(tmp_path / "ledger.jsonl"), local_state)
            yield made
            assert await made.sessions() == 0
            await lease.aclose()
            assert made.ledger.open_ids() == ()
            assert await local_backend.list({"agentrl-run": "test", "agentrl-rollout": "i0-g0-r0"}) == []

    return opened
