"""A real agent program in a real sandbox, against a real gateway and an engine that samples what a test says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutting_relay import CuttingRelay
from reserved import reserved_port
from tiny_model import Speller

from agentrl.api import Dialect, Harness, HarnessJob, HarnessResult, Resources, Sandbox, SandboxSpec
from agentrl.gateway.engine import SGLangEngine
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.server import Gateway
from agentrl.gateway.session import Budgets, Session
from agentrl.outcomes import AgentEnd, ExitStatus, Outcome
from agentrl.rollout.verify import Report, verify
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl.tokens import load_codec
from agentrl.tokens.samples import samples_from
from agentrl.types import Rollout, Sample, Trajectory
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings

WORKDIR = "/testbed"
ASSISTANT = "<|im_start|>assistant\n"


def call(name: str, **arguments: Any) -> str:
    """A tool call as the model of these tests spells it."""
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Actor:
    """A script for an engine: the n-th reply of a conversation is the n-th of ``said``, and the last one from then on. Every
    reply is spelled letter by letter, which no encoder would do."""

    speller: Speller
    said: Sequence[str]

    def __call__(self, prompt: list[int], _number: int) -> list[int]:
        turn = self.speller.text(prompt).count(ASSISTANT) - 1
        reply = self.said[min(turn, len(self.said) - 1)]
        return [i for letter in reply for i in self.speller.ids(letter)[:-1]] + [self.speller.end]


class Recorder:
    """A dialect that remembers every request body that it read."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.bodies: list[Mapping[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def read(self, body: Mapping[str, Any]) -> Any:
        self.bodies.append(body)
        return self._dialect.read(body)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished run and what would be trained of it, checked against the engine calls."""

    result: HarnessResult
    trajectory: Trajectory
    samples: tuple[Sample, ...]
    report: Report

    @property
    def forks(self) -> list[str]:
        """Why turns did not continue the one before."""
        return [turn.fork_reason for turn in self.trajectory.turns if turn.fork_reason]


@dataclass(slots=True)
class Rig:
    """One rollout's parts. ``bodies``: the requests of the program, as they came."""

    gateway: Gateway
    engine: ScriptedEngine
    relay: CuttingRelay
    session: Session
    sandbox: Sandbox
    speller: Speller
    bodies: list[Mapping[str, Any]]

    def text(self, ids: Sequence[int]) -> str:
        """What ids say."""
        return self.speller.text(list(ids))

    async def shell(self, command: str) -> str:
        """What a command in the work folder prints."""
        return (await self.sandbox.exec(command, cwd=WORKDIR, timeout_sec=600)).stdout.decode()

    def job(self, problem: str, **more: Any) -> HarnessJob:
        """An assignment."""
        values: dict[str, Any] = {
            "rollout_id": "r1",
            "problem": problem,
            "workdir": WORKDIR,
            "base_url": self.session.url(self.sandbox.host_url(self.relay.port)),
            "api_key": self.session.token,
            "model": "tiny",
            "max_turns": 0,
            "time_budget_sec": 600.0,
            "turn_timeout_sec": 120.0,
            "context_tokens": 100_000,
        }
        return HarnessJob(**{**values, **more})

    async def run(self, harness: Harness, problem: str, **more: Any) -> Done:
        """Run the program to its end, close the session and check what it recorded. Raises: Violation."""
        result = await harness.run(self.sandbox, self.job(problem, **more))
        trajectory = await self.gateway.close_session(self.session)
        samples = samples_from(trajectory, rollout_id="r1", reward=1.0)
        return Done(result, trajectory, samples, verify([_graded(trajectory, samples)]))


async def open_rig(
    stack: AsyncExitStack,
    said: Sequence[str],
    *,
    harness: Harness,
    dialect: Dialect,
    model_dir: Path,
    machines: Path,
    budgets: Mapping[str, Any] | None = None,
    **options: Any,
) -> Rig:
    """Everything started, to be closed with ``stack``. ``machines``: where sandboxes and baked images lie; ``options``: the gateway's."""
    speller, recorder = Speller(model_dir), Recorder(dialect)
    port = stack.enter_context(reserved_port())  # nobody else's once the engine is gone
    engine = await stack.enter_async_context(ScriptedEngine(Actor(speller, said), port=port))
    client = SGLangEngine(engine.url, timeout_sec=300)
    stack.push_async_callback(client.aclose)
    values = {"context_tokens": 100_000, "turn_timeout_sec": 120.0, "sampling": SamplingPolicy(max_new_tokens=4096)}
    gateway = Gateway(codec=load_codec(model_dir), engine=client, dialects=(recorder,), **{**values, **options})
    await gateway.start()
    stack.push_async_callback(gateway.aclose)
    relay = await stack.enter_async_context(CuttingRelay(gateway.port))
    backend = LocalBackend(LocalSettings(state_dir=str(machines)))
    stack.push_async_callback(backend.aclose)
    spec = SandboxSpec(image=await backend.prepare(None, Resources(), harness.layers()), reach=(relay.port,))
    sandbox = await backend.create(spec, labels={"agentrl-run": "test"}, lifetime_sec=3600)
    await sandbox.write_file(f"{WORKDIR}/start.txt", b"broken\n")
    session = gateway.open_session("r1", Budgets(**(budgets or {})))
    return Rig(gateway, engine, relay, session, sandbox, speller, recorder.bodies)


def _graded(trajectory: Trajectory, samples: tuple[Sample, ...]) -> Rollout:
    return Rollout(
        id="r1",
        group_id="g",
        task_id="t",
        level="",
        iteration=0,
        outcome=Outcome.GRADED,
        exit_status=ExitStatus.SOLVED,
        agent_end=AgentEnd.FINISHED,
        reward=1.0,
        grade=None,
        samples=samples,
        trajectory=trajectory,
        seconds={},
    )
