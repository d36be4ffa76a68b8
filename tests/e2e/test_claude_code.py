"""``SWE_AGENT=claude-code agentrl rollout``: the real program, from the command line to the journal."""

from __future__ import annotations

import pytest
from claude_rig import call
from command import finish, rows
from repair import repair_row, saying
from tiny_model import CONTEXT, Speller

from agentrl.testing.scripted_engine import ScriptedEngine

# In its simple mode its prompt fits into the tiny model.
CLAUDE = {"SWE_AGENT": "claude-code", "SWE_CLAUDE_SIMPLE": "1", "SWE_CONTEXT_TOKENS": str(CONTEXT)}


async def check(made) -> dict:
    """The only rollout of the only run, once ``verify`` has found nothing."""
    [run] = made.runs.iterdir()
    proof = made.run("verify", run.name)
    assert proof.code == 0, proof.output
    await made.gone()
    [row] = rows(run / "journal.jsonl")
    assert row["details"]["version"]
    return row


@pytest.mark.parametrize("reach", ["auto", "relay"])
async def test_it_solves_a_task_that_the_model_solves(command, model_dir, reach):
    """By relay it has no route to the host at all: its machine's network is its own, and nothing is carried through the wall."""
    replies = [call("Bash", command="echo fixed > state.txt", description="Repair it"), "It is repaired."]
    async with ScriptedEngine(saying(Speller(model_dir), replies)) as model:
        made = command([repair_row("one")], **CLAUDE, AGENTRL_ENGINE=model.url, SWE_MAX_NEW_TOKENS="200")
        done = await finish(await made.start("rollout", SWE_MAX_TURNS="5", AGENTRL_REACH=reach))
    assert done.code == 0, done.output
    row = await check(made)
    assert (row["exit_status"], row["reward"], row["agent_end"]) == ("solved", 1.0, "finished")
    assert len(row["samples"]) == 1 and len(row["turns"]) == 2
    assert row["details"]["terminal_reason"] == "completed"


async def test_a_model_that_can_do_nothing_still_ends_with_a_status(command):
    made = command([repair_row("one")], **CLAUDE, AGENTRL_LOCAL_THREADS="1")
    done = made.run("rollout", SWE_MAX_TURNS="3")
    row = await check(made)
    # Its replies are cut or mean nothing; whichever comes first, nothing was repaired and every token counts.
    assert row["exit_status"] in ("empty_patch", "turn_budget", "token_budget"), done.output
    assert row["reward"] == 0.0
    assert sum(end - start for sample in row["samples"] for start, end in sample["spans"]) == sum(
        len(turn["ids"]) for turn in row["turns"]
    )
