"""``SWE_SANDBOX=docker agentrl rollout``: a task of the examples, from the command line to the journal, with each kind of agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claude_rig import call
from command import finish, rows
from docker_engine import docker
from repair import SUBMIT, bash, saying
from tiny_model import CONTEXT, Speller

from agentrl.testing.scripted_engine import ScriptedEngine

TASKS = Path(__file__).parents[2] / "examples" / "swe" / "tasks.jsonl"
FIX = "chmod +x tools/backup.sh"


def keys(*typed: str, done: bool = False) -> str:
    """A reply of terminus-2's model."""
    commands = [{"keystrokes": keystrokes, "duration": 0.5} for keystrokes in typed]
    return json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": done})


def typing(speller: Speller) -> Callable[[list[int], int], list[int]]:
    """A script like :func:`repair.saying` for terminus-2: it is done when the terminal shows that the repair was made."""

    def script(prompt: list[int], _number: int) -> list[int]:
        text = speller.text(prompt)
        typed = keys("") if FIX in text else keys(f"{FIX}; echo repa''ired\n")
        return speller.ids(keys(done=True) if "repaired" in text else typed)

    return script


CLAUDE = [call("Bash", command=FIX, description="Repair it"), "Done."]
AGENTS = {
    "mini-swe": ([bash(FIX), SUBMIT], {"SWE_MINI_DEMONSTRATION": "false"}),
    "terminus-2": ([], {"SWE_MAX_TURNS": "50"}),
    "claude-code": (CLAUDE, {"SWE_CLAUDE_SIMPLE": "1"}),
    # Then a container has nothing but its own loopback, where nobody of ours listens.
    "claude-code by relay": (
        CLAUDE,
        {"SWE_CLAUDE_SIMPLE": "1", "AGENTRL_REACH": "relay", "SWE_DOCKER_NETWORK": "none"},
    ),
}


@pytest.fixture
def task() -> dict[str, Any]:
    """A row of the examples."""
    [row] = [row for row in rows(TASKS) if row["metadata"]["instance_id"] == "backup-permission"]
    return row


@pytest.fixture
def variables(docker_settings) -> dict[str, str]:
    """Containers of the tests' engine, and lengths that the tiny model has."""
    engine = docker_settings()
    containers = {"SWE_SANDBOX": "docker", "DOCKER_HOST": engine.host, "SWE_DOCKER_IMAGE": engine.image}
    return {**containers, "SWE_CONTEXT_TOKENS": str(CONTEXT), "SWE_MAX_NEW_TOKENS": "400", "SWE_MAX_TURNS": "5"}


def containers(variables: dict[str, str], run: Path) -> list[str]:
    """Those of a run, in whatever state."""
    words = ("ps", "--all", "--quiet", "--filter", f"label=agentrl-run={run.name}")
    return docker(variables["DOCKER_HOST"], *words).split()


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
async def test_a_task_of_the_examples_is_solved_in_containers(command, model_dir, task, variables, agent):
    replies, more = AGENTS[agent]
    speller = Speller(model_dir)
    async with ScriptedEngine(saying(speller, replies) if replies else typing(speller)) as model:
        made = command([task], **{**variables, **more}, SWE_AGENT=agent.split()[0], AGENTRL_ENGINE=model.url)
        done = await finish(await made.start("rollout"))
    assert done.code == 0, done.output
    [run] = made.runs.iterdir()
    assert made.run("verify", run.name).code == 0
    [rollout] = rows(run / "journal.jsonl")
    assert (rollout["exit_status"], rollout["reward"]) == ("solved", 1.0), rollout
    assert containers(variables, run) == []
    await made.gone()


@pytest.mark.slow
async def test_what_a_killed_run_leaves_is_garbage_collected(command, model_dir, task, variables):
    async with ScriptedEngine(saying(Speller(model_dir), [SUBMIT])) as model:
        model.held = asyncio.Event()
        made = command([task], **variables, AGENTRL_ENGINE=model.url)
        process = await made.start("rollout")
        await model.arrived.acquire()
        process.kill()
        await finish(process)
        [run] = made.runs.iterdir()
        assert len(containers(variables, run)) == 1
        collected = made.run("gc", AGENTRL_ENGINE=model.url)
    assert collected.code == 0, collected.output
    assert containers(variables, run) == []
    await made.gone()
