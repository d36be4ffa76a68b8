"""``SWE_AGENT=codex agentrl rollout``: the real program, from the command line to the journal."""

from __future__ import annotations

from agent_rig import call
from command import finish, rows
from repair import repair_row, saying
from tiny_model import CONTEXT, Speller

from agentrl.testing.scripted_engine import ScriptedEngine

# Its own instructions would not fit into the tiny model.
CODEX = {"SWE_AGENT": "codex", "SWE_CODEX_INSTRUCTIONS": "Repair it.", "SWE_CONTEXT_TOKENS": str(CONTEXT)}


async def only_row(made, known=frozenset()):
    """The only rollout of the only run that is not ``known``, once ``verify`` has found nothing; and the run's name."""
    [run] = {path.name for path in made.runs.iterdir()} - known
    proof = made.run("verify", run)
    assert proof.code == 0, proof.output
    await made.gone()
    [row] = rows(made.runs / run / "journal.jsonl")
    return row, run


async def test_it_solves_what_the_model_solves_and_a_model_that_can_do_nothing_ends_with_a_status(command, model_dir):
    replies = [call("exec_command", cmd="echo fixed > state.txt"), "It is repaired."]
    made = command([repair_row("one")], **CODEX, AGENTRL_LOCAL_THREADS="1")
    async with ScriptedEngine(saying(Speller(model_dir), replies)) as model:
        scripted = {"AGENTRL_ENGINE": model.url, "SWE_MAX_NEW_TOKENS": "200", "SWE_MAX_TURNS": "5"}
        done = await finish(await made.start("rollout", **scripted))
    assert done.code == 0, done.output
    row, run = await only_row(made)
    assert (row["exit_status"], row["reward"], row["agent_end"]) == ("solved", 1.0, "finished")
    assert len(row["samples"]) == 1 and len(row["turns"]) == 2
    assert row["details"]["items"]["command_execution"] == 1

    # The image is baked by now; the local engine samples from a random model.
    done = made.run("rollout", SWE_MAX_TURNS="3")
    row, _ = await only_row(made, {run})
    assert row["exit_status"] in ("empty_patch", "turn_budget", "token_budget"), done.output
    assert row["reward"] == 0.0
    trained = sum(end - start for sample in row["samples"] for start, end in sample["spans"])
    assert trained == sum(len(turn["ids"]) for turn in row["turns"]) > 0
