"""The agent: show the terminal, read keystrokes, type them, until it has said twice that it is done.

Not here: the sandbox's lifecycle, grading, tokens. The gateway records what the model wrote and owns all retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import aiohttp

from agentrl.api import AgentEnd, ChatAnswer, HarnessJob, HarnessResult, Layer, OutOfBudget, Sandbox, ask
from agentrl_terminus_2 import prompts
from agentrl_terminus_2.json_reply import read_json
from agentrl_terminus_2.reply import Reply
from agentrl_terminus_2.settings import Terminus2Settings
from agentrl_terminus_2.summary import summarize
from agentrl_terminus_2.terminal import TMUX_LAYER, Terminal, TerminalDied
from agentrl_terminus_2.xml_reply import read_xml, salvage_xml

MAX_CUT_REPLIES = 5
"""Replies in a row that may be cut by the length limit before the agent gives up."""


@dataclass(slots=True)
class _State:
    """What happened so far; the counters go to the journal however the work ends."""

    messages: list[dict[str, str]] = field(default_factory=list)
    turns: int = 0
    parse_errors: int = 0
    cut_replies: int = 0
    cut_in_a_row: int = 0
    summaries: int = 0
    claimed_done: bool = False

    def details(self) -> dict[str, int]:
        """The counters."""
        return {k: v for k, v in asdict(self).items() if isinstance(v, int) and not isinstance(v, bool)}


class Terminus2:
    """A coding agent over one terminal. The sandbox needs bash and tmux."""

    runs_in: Literal["host", "sandbox"] = "host"

    def __init__(self, settings: Terminus2Settings) -> None:
        self._settings = settings

    def layers(self) -> Sequence[Layer]:
        """tmux, where an image lacks it."""
        return (TMUX_LAYER,)

    async def install(self, sandbox: Sandbox) -> None:
        """Nothing for each rollout."""

    async def run(self, sandbox: Sandbox, job: HarnessJob) -> HarnessResult:
        """Work until confirmed done or out of budget. Raises: HarnessError, SandboxError, EngineUnavailable."""
        state = _State()
        try:
            async with asyncio.timeout(job.time_budget_sec) as budget, aiohttp.ClientSession() as http:
                end, message = await self._work(http, sandbox, job, state)
        except OutOfBudget as refusal:
            end, message = refusal.end, str(refusal)
        except TerminalDied as death:
            end, message = AgentEnd.FINISHED, str(death)
        except TimeoutError:
            if not budget.expired():
                raise
            end, message = AgentEnd.TIME_BUDGET, f"{job.time_budget_sec:g} s are over"
        return HarnessResult(end, message, state.details())

    async def _work(
        self, http: aiohttp.ClientSession, sandbox: Sandbox, job: HarnessJob, state: _State
    ) -> tuple[AgentEnd, str]:
        terminal = Terminal(sandbox, job.workdir)
        screen = await terminal.start()
        first = prompts.opening(self._settings.parser, problem=job.problem, workdir=job.workdir, terminal=screen)
        state.messages = [_user(first)]
        while job.max_turns == 0 or state.turns < job.max_turns:
            answer = await self._ask(http, job, terminal, state)
            state.turns += 1
            said = await self._answer(terminal, answer, state)
            if said is None:
                return AgentEnd.FINISHED, "confirmed as complete"
            if state.cut_in_a_row >= MAX_CUT_REPLIES:
                return AgentEnd.TOKEN_BUDGET, f"{MAX_CUT_REPLIES} replies in a row exceeded the length of a turn"
            state.messages += [answer.echo(), _user(said)]
        return AgentEnd.TURN_BUDGET, f"{job.max_turns} turns are over"

    async def _ask(self, http: aiohttp.ClientSession, job: HarnessJob, terminal: Terminal, state: _State) -> ChatAnswer:
        """The next answer; when the context is full and summaries are on, from a summary of what went before."""
        try:
            return await ask(http, job, state.messages)
        except OutOfBudget as refusal:
            if refusal.end is not AgentEnd.CONTEXT_BUDGET or not self._settings.summarize:
                raise
        screen = await terminal.type(())
        state.messages = await summarize(http, job, state.messages, screen)
        state.summaries += 1
        return await ask(http, job, state.messages)

    async def _answer(self, terminal: Terminal, answer: ChatAnswer, state: _State) -> str | None:
        """What the model reads next; None once it has confirmed that it is done."""
        reply = self._read(answer)
        if reply is None:
            state.cut_replies += 1
            state.cut_in_a_row += 1
            return prompts.too_long("\n".join(self._parse(answer.content).warnings))
        state.cut_in_a_row = 0
        if reply.error:
            state.parse_errors += 1
            return prompts.correction(self._settings.parser, reply.feedback)
        screen = await terminal.type(reply.commands)
        confirmed, state.claimed_done = reply.complete and state.claimed_done, reply.complete
        if confirmed:
            return None
        if reply.complete:
            return prompts.confirmation(self._settings.parser, screen)
        return prompts.observation(screen, reply.feedback)

    def _read(self, answer: ChatAnswer) -> Reply | None:
        """The parsed reply; None for one that was cut before it was whole."""
        if answer.finish != "length":
            return self._parse(answer.content)
        return salvage_xml(answer.content) if self._settings.parser == "xml" else None

    def _parse(self, content: str) -> Reply:
        return read_json(content) if self._settings.parser == "json" else read_xml(content)


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
