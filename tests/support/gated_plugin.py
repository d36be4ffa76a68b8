"""A plugin for tests: a run that asks for leave before each step, so that a test can end it exactly there.

The engine ``gated`` starts a process of no use and hands out the URL of an engine that runs already. The trainer ``plain``
counts iterations instead of training. The middleware ``gate`` asks before each turn. See :mod:`gate` for the other side.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from agentrl.api import (
    CallNext,
    EngineSpec,
    Leashed,
    PluginSettings,
    Register,
    Reply,
    TrainingRun,
    TurnContext,
    environment,
    hookimpl,
    start_leashed,
)

# These runs need a tokenizer and no torch, whose import would be most of the time that they take.
sys.modules.setdefault("torch", None)


class GatedSettings(PluginSettings):
    port: int = Field(0, validation_alias="AGENTRL_GATE_PORT", description="Port of the gate; 0: there is none.")
    engine_url: str = Field("", validation_alias="AGENTRL_GATE_ENGINE", description="The engine behind the gate.")


async def ask(settings: GatedSettings, step: str) -> None:
    """Return when the gate lets this step pass."""
    if settings.port:
        reader, writer = await asyncio.open_connection("127.0.0.1", settings.port)
        writer.write(f"{step}\n".encode())
        try:
            await reader.readline()
        finally:
            writer.close()


@dataclass(frozen=True, slots=True)
class RunningGatedEngine:
    url: str
    process: Leashed

    async def aclose(self) -> None:
        await self.process.stop()


class GatedEngine:
    def __init__(self, settings: GatedSettings) -> None:
        self._settings = settings

    async def start(self, spec: EngineSpec) -> RunningGatedEngine:
        process = await start_leashed(["sleep", "1000"], env=environment(), log_path=spec.log_path)
        try:
            await ask(self._settings, "start")
        except BaseException:
            await process.stop()
            raise
        return RunningGatedEngine(self._settings.engine_url, process)

    async def probe(self) -> str | None:
        return None


class PlainTrainer:
    """Its checkpoint is a number in a file."""

    def __init__(self, settings: GatedSettings) -> None:
        self._settings = settings

    def last_checkpoint(self, checkpoint_dir: Path) -> int:
        file = checkpoint_dir / "iterations"
        return int(file.read_text()) if file.exists() else 0

    async def probe(self) -> str | None:
        return None

    async def train(self, run: TrainingRun) -> None:
        await self._publish(run, run.spec.first_iteration)
        for iteration in range(run.spec.first_iteration, run.spec.iterations):
            groups = await run.groups(iteration)
            run.progress("train")
            await ask(self._settings, f"train {iteration}")
            await self._publish(run, iteration + 1)
            self._save(run.spec.checkpoint_dir, iteration + 1)
            trained = sum(len(rollout.samples) for group in groups for rollout in group.rollouts)
            await run.report(iteration, {"samples_trained": trained}, {"train": 0.0})

    async def _publish(self, run: TrainingRun, version: int) -> None:
        run.progress("publish")
        await run.engine.pause()
        await ask(self._settings, f"publish {version}")
        await run.engine.update_weights_from_disk(run.spec.model_dir, str(version))
        await run.engine.resume()

    @staticmethod
    def _save(folder: Path, iterations: int) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "iterations.new").write_text(str(iterations))
        (folder / "iterations.new").rename(folder / "iterations")


class GateMiddleware:
    def __init__(self, settings: GatedSettings) -> None:
        self._settings = settings

    async def __call__(self, turn: TurnContext, call_next: CallNext) -> Reply:
        await ask(self._settings, f"turn {turn.rollout_id} {turn.turns_so_far}")
        return await call_next(turn)


@hookimpl
def agentrl_register_engines(register: Register) -> None:
    register("gated", f"{__name__}:GatedEngine", settings=f"{__name__}:GatedSettings")


@hookimpl
def agentrl_register_trainers(register: Register) -> None:
    register("plain", f"{__name__}:PlainTrainer", settings=f"{__name__}:GatedSettings")


@hookimpl
def agentrl_register_middleware(register: Register) -> None:
    register("gate", f"{__name__}:GateMiddleware", settings=f"{__name__}:GatedSettings")
