"""A stranger's grader, installed beside ours, is what training is rewarded by: one variable chooses it."""

from __future__ import annotations

import json

import pytest
from command import rows
from tiny_model import tiny_model

SIZE = 10
# The file is right or wrong by the toss of a coin, since a random model will not write it. Both groups come up all the
# same, so that there is nothing to learn, once in 250,000 runs.
SETUP = "seq $(( 2 + $(od -An -N1 -tu1 /dev/urandom) % 2 )) > greeting.txt"


@pytest.mark.slow
def test_an_installed_grader_rewards_a_training_run(installed, tmp_path):
    task = {"workdir": "/workspace", "problem": "Make it three lines.", "setup": SETUP}
    tasks = [{**task, "id": name, "expect": {"path": "greeting.txt", "lines": 3}} for name in ("one", "two")]
    data = tmp_path / "tasks.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in tasks))
    done = installed.run(
        *("train", "--name", "strange"),
        check=False,
        SWE_TRAIN_PROTOCOL="linecount",
        SWE_TRAIN_DATA=str(data),
        SWE_LOCAL_STATE_DIR=str(tmp_path / "local"),
        SWE_MAX_TURNS="1",
        SWE_MAX_NEW_TOKENS="8",
        SWE_CONTEXT_TOKENS="1024",
        AGENTRL_MODEL=str(tiny_model(tmp_path / "model")),
        AGENTRL_DTYPE="float32",
        AGENTRL_RUN_DIR=str(tmp_path / "runs"),
        AGENTRL_ITERATIONS="1",
        AGENTRL_GROUPS="2",
        AGENTRL_GROUP_SIZE=str(SIZE),
        AGENTRL_LOCAL_THREADS="1",
        AGENTRL_LOCAL_START_SEC="600",
        AGENTRL_TRAINER_THREADS="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "strange"
    plan = json.loads((run / "plan.json").read_text())
    for role in ("grader", "task format"):
        assert plan["parts"][role] == ["linecount (agentrl-example-grader 0.1.0)"]
    journal = rows(run / "journal.jsonl")
    # What its grader counted, and what it made of that.
    assert {(row["grade"]["details"]["lines"], row["reward"]) for row in journal} <= {(3, 1.0), (2, 0.0)}
    [metrics] = rows(run / "metrics.jsonl")
    assert metrics["rollouts_graded"] == 2 * SIZE
    assert metrics["reward"] == pytest.approx(sum(row["reward"] for row in journal) / len(journal))
    assert metrics["samples_trained"] >= SIZE
    assert metrics["logprob_abs_diff"] < 1e-3
