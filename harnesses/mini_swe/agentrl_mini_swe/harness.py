"""The agent: ask the model, run its command in the sandbox, show it what happened, until it submits.

Not here: the sandbox's lifecycle, grading, tokens. The gateway records what the model wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import aiohttp

from agentrl.api import AgentEnd, ExecResult, HarnessJob, HarnessResult, Layer, OutOfBudget, Sandbox, ask
from agentrl_mini_swe import prompts
from agentrl_mini_swe.observation import describe, is_submission, output_text
from agentrl_mini_swe.reply import ReplyError, read_command
from agentrl_mini_swe.settings import MiniSweSettings

# Programs that page or animate their output would wait for a terminal or fill the context.
_PLAIN_OUTPUT = {"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "TERM": "dumb", "PIP_PROGRESS_BAR": "off"}


@dataclass(slots=True)
class _Tally:
    """What happened so far; goes to the journal however the work ends."""

    turns: int = 0
    commands: int = 0
    parse_errors: int = 0


class MiniSwe:
    """A coding agent in one loop. It needs nothing in the sandbox but bash."""

    runs_in: Literal["host", "sandbox"] = "host"

    def __init__(self, settings: MiniSweSettings) -> None:
        self._settings = settings

    def layers(self) -> Sequence[Layer]:
        """Nothing to bake: the agent lives on the host."""
        return ()

    async def install(self, sandbox: Sandbox) -> None:
        """Nothing to install."""

    async def run(self, sandbox: Sandbox, job: HarnessJob) -> HarnessResult:
        """Work until submitted or out of budget. Raises: HarnessError, SandboxError, EngineUnavailable."""
        tally = _Tally()
        try:
            async with asyncio.timeout(job.time_budget_sec) as budget, aiohttp.ClientSession() as http:
                end, message = await self._work(http, sandbox, job, tally)
        except OutOfBudget as refusal:
            end, message = refusal.end, str(refusal)
        except TimeoutError:
            if not budget.expired():
                raise
            end, message = AgentEnd.TIME_BUDGET, f"{job.time_budget_sec:g} s are over"
        return HarnessResult(end, message, asdict(tally))

    async def _work(
        self, http: aiohttp.ClientSession, sandbox: Sandbox, job: HarnessJob, tally: _Tally
    ) -> tuple[AgentEnd, str]:
        """The loop. A turn is one reply of the model, whether it held a command or not."""
        messages = prompts.opening(problem=job.problem, workdir=job.workdir, demonstration=self._settings.demonstration)
        while job.max_turns == 0 or tally.turns < job.max_turns:
            reply = await ask(http, job, messages)
            tally.turns += 1
            answer = await self._answer(sandbox, job, reply.content, tally)
            if answer is None:
                return AgentEnd.FINISHED, "submitted"
            messages += [reply.echo(), prompts.user(answer)]
        return AgentEnd.TURN_BUDGET, f"{job.max_turns} turns are over"

    async def _answer(self, sandbox: Sandbox, job: HarnessJob, reply: str, tally: _Tally) -> str | None:
        """What the model reads next; None once it has submitted."""
        try:
            command = read_command(reply)
        except ReplyError as problem:
            tally.parse_errors += 1
            return prompts.correction(str(problem))
        tally.commands += 1
        result = await self._execute(sandbox, job, command)
        if is_submission(output_text(result)):
            return None
        limit = self._settings
        return describe(result, timeout_sec=limit.command_timeout_sec, max_chars=limit.output_chars)

    async def _execute(self, sandbox: Sandbox, job: HarnessJob, command: str) -> ExecResult:
        """Both streams go to one, so that errors stand between the lines that they followed."""
        return await sandbox.exec(
            f"exec 2>&1; {command}",
            cwd=job.workdir,
            env=_PLAIN_OUTPUT,
            timeout_sec=self._settings.command_timeout_sec,
        )
