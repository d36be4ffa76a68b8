"""Going on when the context is full: a summary, questions about it, answers, and a fresh conversation from these.

Off by default: each summary starts a new chain, so that a rollout becomes several samples.
"""

from __future__ import annotations

import aiohttp

from agentrl.api import AgentEnd, HarnessJob, OutOfBudget, ask

Messages = list[dict[str, str]]

_SUMMARIZE = (
    "You are about to hand over your work to another AI agent. Summarise it in detail: what has been done and what came of "
    "it, what is known about the environment, what the difficulties were, and what is still to do for the original task."
)
_QUESTIONS = (
    "You take over the work of another AI agent. The task, in its own words:\n{task}\n\nIts summary:\n{summary}\n\nThe "
    "terminal now:\n{screen}\n\nAsk at least five questions about what the summary leaves open and you need to know."
)
_ANSWERS = "The next agent has questions. Answer each of them in detail:\n{questions}"
_HANDOFF = "Here are the answers of the agent before you:\n{answers}\n\nContinue the task from the current state of the terminal."


async def summarize(http: aiohttp.ClientSession, job: HarnessJob, messages: Messages, screen: str) -> Messages:
    """A fresh conversation that stands for ``messages``. Raises: OutOfBudget, EngineUnavailable, HarnessError."""
    kept, summary = await _ask_with_room(http, job, messages, _SUMMARIZE)
    task = messages[0]["content"]
    question = _user(_QUESTIONS.format(task=task, summary=summary, screen=screen))
    questions = await ask(http, job, [question])
    _, answers = await _ask_with_room(http, job, kept, _ANSWERS.format(questions=questions.content))
    return [messages[0], question, questions.echo(), _user(_HANDOFF.format(answers=answers))]


async def _ask_with_room(
    http: aiohttp.ClientSession, job: HarnessJob, messages: Messages, prompt: str
) -> tuple[Messages, str]:
    """Ask behind ``messages``, from the end of which pairs are dropped until there is room; returns what was kept."""
    kept = list(messages)
    while True:
        try:
            return kept, (await ask(http, job, [*kept, _user(prompt)])).content
        except OutOfBudget as refusal:
            if refusal.end is not AgentEnd.CONTEXT_BUDGET or len(kept) <= 2:
                raise
        kept = kept[:-2]


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
