"""Runs that fail say why, leave nothing behind, and go on once the cause is gone."""

from __future__ import annotations

from collections.abc import Callable

from command import Command, finish, rows
from repair import FIX, SUBMIT, repair_row, saying
from tiny_model import Speller

from agentrl.rollout.pool import ATTEMPTS
from agentrl.testing.scripted_engine import ScriptedEngine

SMALL = {
    "AGENTRL_PLUGINS": "gated_plugin",
    "AGENTRL_TRAINER": "plain",
    "AGENTRL_GROUPS": "1",
    "SWE_MAX_NEW_TOKENS": "100",
    "SWE_MINI_DEMONSTRATION": "false",
}


async def test_an_engine_that_is_not_there_is_said_so(command: Callable[..., Command]):
    made = command([repair_row()], **SMALL, AGENTRL_ENGINE="http://127.0.0.1:9")
    done = made.run("train", "--name", "deaf")
    assert done.code == 1
    assert "failed: cannot connect to the engine at http://127.0.0.1:9" in done.output
    assert "go on with: agentrl train --resume deaf" in done.output
    assert "Traceback" not in done.output
    await made.gone()


async def test_a_run_that_an_outage_ended_goes_on_after_it(command, model_dir):
    async with ScriptedEngine(saying(Speller(model_dir), [FIX, SUBMIT])) as model:
        made = command([repair_row()], **SMALL, AGENTRL_ENGINE=model.url)
        model.fail_next(*["http_503"] * 2 * ATTEMPTS)
        failed = await finish(await made.start("train", "--name", "out"))
        assert failed.code == 1
        assert "2 of 2 rollouts were aborted, more than AGENTRL_MAX_ABORTED_SHARE allows" in failed.output
        assert "2 x engine_failed" in failed.output
        assert "Traceback" not in failed.output
        done = await finish(await made.start("train", "--resume", "out"))
    assert done.code == 0, done.output
    metrics = rows(made.runs / "out" / "metrics.jsonl")
    assert [(row["iteration"], row["reward"], row["rollouts_aborted"]) for row in metrics] == [
        (0, 1.0, {}),
        (1, 1.0, {}),
    ]
    proof = made.run("verify", "out")
    assert proof.code == 0, proof.output


async def test_rollouts_without_training_are_shown_and_proved(command, model_dir):
    async with ScriptedEngine(saying(Speller(model_dir), [FIX, SUBMIT])) as model:
        made = command([repair_row("one"), repair_row("two")], **SMALL, AGENTRL_ENGINE=model.url)
        done = await finish(await made.start("rollout", "--task", "two", "-n", "3"))
        unknown = await finish(await made.start("rollout", "--task", "twoo"))
    assert done.code == 0, done.output
    assert done.output.count("solved") == 3
    [run] = made.runs.iterdir()
    assert {row["task_id"] for row in rows(run / "journal.jsonl")} == {"two"}
    assert made.run("verify", run.name).code == 0
    assert unknown.code == 2
    assert "there is no task twoo. Did you mean two?" in unknown.output
