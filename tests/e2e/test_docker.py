"""``SWE_SANDBOX=docker agentrl rollout``: a task of the examples, from the command line to the journal, with each kind of agent."""

from __future__ import annotations

import json
from pathlib import Path

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


AGENTS = {
    "mini-swe": ([bash(FIX), SUBMIT], {"SWE_MINI_DEMONSTRATION": "false"}),
    "terminus-2": ([keys(f"{FIX}\n"), keys(done=True), keys(done=True)], {}),
    "claude-code": ([call("Bash", command=FIX, description="Repair it"), "Done."], {"SWE_CLAUDE_SIMPLE": "1"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
async def test_a_task_of_the_examples_is_solved_in_containers(command, model_dir, docker_settings, agent):
    [row] = [row for row in rows(TASKS) if row["metadata"]["instance_id"] == "backup-permission"]
    replies, more = AGENTS[agent]
    engine = docker_settings()
    async with ScriptedEngine(saying(Speller(model_dir), replies)) as model:
        variables = {
            "SWE_SANDBOX": "docker",
            "DOCKER_HOST": engine.host,
            "SWE_DOCKER_IMAGE": engine.image,
            "SWE_AGENT": agent,
            "AGENTRL_ENGINE": model.url,
            "SWE_CONTEXT_TOKENS": str(CONTEXT),
            "SWE_MAX_NEW_TOKENS": "400",
            "SWE_MAX_TURNS": "5",
        }
        made = command([row], **variables, **more)
        done = await finish(await made.start("rollout"))
    assert done.code == 0, done.output
    [run] = made.runs.iterdir()
    assert made.run("verify", run.name).code == 0
    [rollout] = rows(run / "journal.jsonl")
    assert (rollout["exit_status"], rollout["reward"]) == ("solved", 1.0), rollout
    assert docker(engine.host, "ps", "--all", "--quiet", "--filter", f"label=agentrl-run={run.name}") == ""
    assert made.traces() == []
