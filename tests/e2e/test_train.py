"""``agentrl train`` from the command line to the last file that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Command, finish, rows
from repair import ASSISTANT, repair_row
from tiny_model import Speller

from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl_sglang.install import is_installed, venv_path
from agentrl_sglang.settings import SGLangSettings

COINS = [{"id": f"coin-{i}", "problem": "Toss it.", "level": f"level-{i % 2 + 1}"} for i in range(2)]
PROMISED = {
    "iteration",
    "reward",
    "reward_by_level",
    "rollouts_graded",
    "rollouts_aborted",
    "exit_status",
    "samples",
    "tokens_sampled",
    "tokens_trained",
    "seconds",
}
EXACT = 1e-3


def coin(**more: str) -> dict[str, str]:
    """Rewards that vary whatever the model does."""
    return {"AGENTRL_PLUGINS": "coin_plugin", "SWE_TRAIN_PROTOCOL": "coin", **more}


async def check_files(command: Command, run: Path, *, iterations: int) -> list[dict]:
    """What every finished run must have left; its metrics."""
    metrics = rows(run / "metrics.jsonl")
    assert [row["iteration"] for row in metrics] == list(range(iterations))
    for row in metrics:
        assert row.keys() >= PROMISED
        assert row["rollouts_graded"] == 4
        assert row["rollouts_aborted"] == {}
        assert row["samples"] >= 4
        assert row["tokens_trained"] == row["tokens_sampled"] > 0
    journal = rows(run / "journal.jsonl")
    assert len({row["id"] for row in journal}) == len(journal) == 4 * iterations
    for name in ("reward.png", "plan.json", "ledger.jsonl"):
        assert (run / name).stat().st_size
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    proof = command.run("verify", run.name)
    assert proof.code == 0, proof.output
    await command.gone()
    return metrics


def check_real_training(run: Path, metrics: list[dict], model_dir: Path) -> None:
    """Engine and trainer compute the same before and after weights were pushed; the weights that were pushed changed."""
    from transformers import AutoModelForCausalLM

    for row in metrics:
        assert row["reward"] == 0.5
        assert row["logprob_abs_diff"] < EXACT
        assert {"rollout", "train", "publish"} <= row["seconds"].keys()
    versions = {
        row["iteration"]: {turn["weight_version"] for turn in row["turns"]} for row in rows(run / "journal.jsonl")
    }
    assert versions == {0: {"0"}, 1: {"1"}}
    before = AutoModelForCausalLM.from_pretrained(model_dir).state_dict()
    after = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "hf").state_dict()
    assert before.keys() == after.keys()
    assert any(not before[name].equal(after[name]) for name in before)


@pytest.mark.slow
async def test_the_main_job_with_the_real_trainer_and_the_local_engine(command, model_dir):
    real = {"AGENTRL_LEARNING_RATE": "1e-3", "AGENTRL_LOCAL_THREADS": "1", "AGENTRL_TRAINER_THREADS": "1"}
    made = command(COINS, **coin(**real))
    done = made.run("train", "--name", "main")
    assert done.code == 0, done.output
    run = made.runs / "main"
    metrics = await check_files(made, run, iterations=2)
    assert [row["reward_by_level"] for row in metrics] == [{"level-1": 0.5, "level-2": 0.5}] * 2
    check_real_training(run, metrics, model_dir)
    plan = json.loads((run / "plan.json").read_text())
    assert plan["parts"]["grader"] == ["coin (AGENTRL_PLUGINS)"]


def keys(text: str = "", *, wait_sec: float = 0.0, done: bool = False) -> str:
    """A reply as terminus-2 wants it."""
    commands = [{"keystrokes": text, "duration": wait_sec}]
    return json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": done})


def mending(speller: Speller) -> Callable[[list[int], int], list[int]]:
    """A script that types the repair, and says that it is done once the terminal shows that it is."""

    def script(prompt: list[int], _number: int) -> list[int]:
        said = speller.text(prompt)
        if ASSISTANT not in said.removesuffix(ASSISTANT):
            return speller.ids(keys("echo fixed > state.txt; cat state.txt\n", wait_sec=0.3))
        done = "\nfixed\n" in said
        return speller.ids(keys(done=done, wait_sec=0.0 if done else 5.0))

    return script


async def test_another_agent_and_an_engine_that_runs_already(command, model_dir):
    async with ScriptedEngine(mending(Speller(model_dir)), version="old") as model:
        variables = {
            "SWE_AGENT": "Terminus_2",
            "AGENTRL_ENGINE": model.url,
            "AGENTRL_TRAINER": "plain",
            "AGENTRL_PLUGINS": "gated_plugin",
            "SWE_MAX_NEW_TOKENS": "200",
            "SWE_MAX_TURNS": "0",
            "SWE_CONTEXT_TOKENS": "4000",
        }
        made = command([repair_row("one"), repair_row("two", level="level-2")], **variables)
        done = await finish(await made.start("train", "--name", "scripted"))
    assert done.code == 0, done.output
    run = made.runs / "scripted"
    metrics = await check_files(made, run, iterations=2)
    assert [row["reward_by_level"] for row in metrics] == [{"level-1": 1.0, "level-2": 1.0}] * 2
    assert [update["weight_version"] for update in model.updates] == ["0", "1", "2"]
    for row in rows(run / "journal.jsonl"):
        assert row["exit_status"] == "solved"
        assert {turn["weight_version"] for turn in row["turns"]} == {str(row["iteration"])}
        assert len(row["turns"]) >= 3
        # One conversation that only grew is one sample, whatever the agent did in between.
        assert len(row["samples"]) == 1
    assert "logprob_abs_diff" not in metrics[0]


@pytest.mark.slow
@pytest.mark.sglang
async def test_the_main_job_with_a_real_sglang_server(command, model_dir):
    venv = venv_path(SGLangSettings())
    if not is_installed(venv):
        pytest.fail(f"there is no SGLang in {venv}; run: python -m agentrl_sglang.install")
    real = {
        "AGENTRL_ENGINE": "sglang",
        "AGENTRL_SGLANG_VENV": str(venv),
        "AGENTRL_SGLANG_KV_TOKENS": "8192",
        "AGENTRL_SGLANG_THREADS": "1",
        "AGENTRL_TRAINER_THREADS": "1",
        "AGENTRL_LEARNING_RATE": "1e-3",
    }
    made = command(COINS, **coin(**real))
    done = made.run("train", "--name", "sglang")
    assert done.code == 0, done.output
    run = made.runs / "sglang"
    check_real_training(run, await check_files(made, run, iterations=2), model_dir)
