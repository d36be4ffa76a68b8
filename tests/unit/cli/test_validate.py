"""``agentrl validate`` with real sandboxes: a report as it goes, a second run for the rest, a quarantine."""

from __future__ import annotations

import json

import pytest
from repair import repair_row

from agentrl.cli.app import main
from agentrl.plugins import load_plugins
from agentrl.rollout.plan import make_plan
from agentrl.settings import resolve

GOLD = "--- a/state.txt\n+++ b/state.txt\n@@ -1 +1 @@\n-broken\n+fixed\n"


def row(name, **options):
    made = repair_row(name, **options)
    made["metadata"]["gold_patch"] = GOLD
    return made


@pytest.fixture
def check(tmp_path, local_state, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTRL_RUN_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("SWE_LOCAL_STATE_DIR", str(local_state))
    monkeypatch.setenv("SWE_BOOT_CONCURRENCY", "2")
    monkeypatch.setenv("COLUMNS", "200")

    def run(rows, *words):
        (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
        with pytest.raises(SystemExit) as ended:
            main(["validate", "tasks.jsonl", *words])
        return ended.value.code or 0, capsys.readouterr().out

    return run


def booted(tmp_path):
    ledger = tmp_path / "runs/validate/ledger.jsonl"
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def test_a_second_run_checks_only_what_is_new_or_changed(check, tmp_path):
    code, out = check([row("sound"), row("trivial", check="true")])
    assert code == 1 and "1 of 2 tasks are fit" in out and "the idle patch passes" in out
    report = tmp_path / "runs/validate/tasks.jsonl.jsonl"
    rows = {made["task_id"]: made for made in map(json.loads, report.read_text().splitlines())}
    assert rows["sound"]["fit"] and not rows["trivial"]["fit"]
    assert set(json.loads((tmp_path / "tasks.jsonl.quarantine.json").read_text())) == {"trivial"}

    before = booted(tmp_path)
    code, out = check([row("sound"), row("trivial", check="true")])
    assert (code, booted(tmp_path)) == (1, before) and "2 of 2 tasks are settled" in out

    code, out = check([row("sound"), row("trivial")])
    assert code == 0 and "1 of 2 tasks are settled" in out and booted(tmp_path) > before
    assert not (tmp_path / "tasks.jsonl.quarantine.json").exists()


def test_a_machine_that_cannot_be_had_is_no_verdict_and_is_tried_again(check, tmp_path):
    lost = row("lost")
    lost["metadata"]["image"] = "example.org/none:1"
    assert check([lost])[0] == 1
    assert "ImageUnavailable" in (tmp_path / "tasks.jsonl.quarantine.json").read_text()
    assert "are settled" not in check([lost])[1]


def test_training_honours_the_quarantine(check, tmp_path):
    check([row("sound"), row("trivial", check="true")])
    resolved = resolve({"SWE_TRAIN_DATA": "tasks.jsonl"})
    made = make_plan(resolved, load_plugins(resolved), purpose="train")
    assert [task.id for task in made.tasks] == ["sound"]
