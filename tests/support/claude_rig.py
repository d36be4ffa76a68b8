"""The real Claude Code in a real sandbox, against a real gateway and an engine that samples what a test says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutting_relay import CuttingRelay
from tiny_model import Speller

from agentrl.gateway.dialects.anthropic import AnthropicMessages
from agentrl.gateway.server import Gateway
from agentrl.gateway.session import Session
from agentrl.harness import HarnessJob, HarnessResult
from agentrl.outcomes import AgentEnd, ExitStatus, Outcome
from agentrl.rollout.verify import Report, verify
from agentrl.sandbox import Sandbox
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl.tokens.samples import samples_from
from agentrl.types import ChatRequest, Rollout, Sample, Trajectory
from agentrl_claude_code.harness import ClaudeCode
from agentrl_claude_code.settings import ClaudeCodeSettings

WORKDIR = "/testbed"
ASSISTANT, USER, END = "<|im_start|>assistant\n", "<|im_start|>user\n", "<|im_end|>"

SUMMARY = "<analysis>Hm.</analysis>\n<summary>Some steps were made.</summary>"


def call(name: str, **arguments: Any) -> str:
    """A tool call as the model of these tests spells it."""
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def bash(command: str) -> str:
    """A call of the shell."""
    return call("Bash", command=command, description="Run it")


@dataclass(frozen=True, slots=True)
class Actor:
    """A script for an engine. ``said``: what the n-th reply of a conversation is, by a word of its first question; the last
    reply is repeated. ``SUMMARY`` answers a request to sum up. Every reply is spelled letter by letter, which no encoder would do."""

    speller: Speller
    said: Mapping[str, Sequence[str]]

    def __call__(self, prompt: list[int], _number: int) -> list[int]:
        text = self.speller.text(prompt)
        question = text.partition(USER)[2].partition(END)[0]
        replies = next(replies for word, replies in self.said.items() if word in question)
        reply = replies[min(text.count(ASSISTANT) - 1, len(replies) - 1)]
        if "Respond with TEXT ONLY" in text.rpartition(USER)[2]:
            reply = SUMMARY
        return [i for letter in reply for i in self.speller.ids(letter)[:-1]] + [self.speller.end]


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


class RecordedMessages(AnthropicMessages):
    """The dialect, and every request body that it read."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """Remember and read."""
        self.bodies.append(body)
        return super().read(body)


@dataclass(slots=True)
class Rig:
    """One rollout's parts. ``bodies``: the requests of the program, as they came."""

    gateway: Gateway
    engine: ScriptedEngine
    relay: CuttingRelay
    session: Session
    sandbox: Sandbox
    speller: Speller
    bodies: Sequence[Mapping[str, Any]]

    def text(self, ids: Sequence[int]) -> str:
        """What ids say."""
        return self.speller.text(list(ids))

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

    async def run(self, problem: str, *, settings: Mapping[str, str] | None = None, **more: Any) -> Done:
        """Run the program to its end and close the session."""
        harness = ClaudeCode(ClaudeCodeSettings(**(settings or {})))
        result = await harness.run(self.sandbox, self.job(problem, **more))
        return await self.close(result)

    async def close(self, result: HarnessResult) -> Done:
        """What the session recorded. Raises: Violation."""
        trajectory = await self.gateway.close_session(self.session)
        samples = samples_from(trajectory, rollout_id="r1", reward=1.0)
        return Done(result, trajectory, samples, verify([_graded(trajectory, samples)]))

    async def shell(self, command: str) -> str:
        """What a command in the work folder prints."""
        return (await self.sandbox.exec(command, cwd=WORKDIR, timeout_sec=600)).stdout.decode()


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
