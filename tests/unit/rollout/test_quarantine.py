"""Unfit tasks are left out of training, and everybody is told."""

from __future__ import annotations

import json

import pytest
from plugin_folder import plugin_folder
from whole_plugin import whole_environment

from agentrl.errors import UsageError
from agentrl.plugins import load_plugins
from agentrl.rollout.data import quarantine_path, read_quarantine, write_quarantine
from agentrl.rollout.plan import make_plan
from agentrl.settings import resolve


@pytest.fixture
def environ(tmp_path):
    with plugin_folder(tmp_path) as folder:
        yield whole_environment(folder)


def plan(environ, purpose="train", **changes):
    resolved = resolve(environ, changes)
    return make_plan(resolved, load_plugins(resolved), purpose=purpose)


def ids(made):
    return [task.id for task in made.tasks]


def test_training_leaves_them_out_and_a_note_says_so(environ, tmp_path):
    (tmp_path / "tasks.jsonl.quarantine.json").write_text(json.dumps({"t2": ["gold fails"], "gone": ["old"]}))
    made = plan(environ)
    assert ids(made) == ["t1"] and made.problems == ()
    assert any("1 of 2 tasks are unfit" in note and "t2" in note for note in made.notes)
    assert ids(plan(environ, "rollout")) == ids(plan(environ, "validate")) == ["t1", "t2"]


def test_the_setting_names_another_file(environ, tmp_path):
    (tmp_path / "tasks.jsonl.quarantine.json").write_text('{"t2": []}')
    assert ids(plan(environ, SWE_QUARANTINE="/dev/null")) == ["t1", "t2"]
    (tmp_path / "mine.json").write_text('{"t1": ["flaky"]}')
    assert ids(plan(environ, SWE_QUARANTINE=str(tmp_path / "mine.json"))) == ["t2"]


@pytest.mark.parametrize(("content", "word"), [('{"t1": [], "t2": []}', "leaves no task"), ("[1]", "is no quarantine")])
def test_a_quarantine_that_cannot_be_is_a_problem(environ, tmp_path, content, word):
    (tmp_path / "tasks.jsonl.quarantine.json").write_text(content)
    assert any(word in problem for problem in plan(environ).problems)


def test_the_file_is_there_exactly_when_something_is_unfit(tmp_path):
    path = quarantine_path(tmp_path / "tasks.jsonl", None)
    write_quarantine(path, {"a": ("b",)})
    assert read_quarantine(path) == {"a": ("b",)}
    write_quarantine(path, {})
    assert not path.exists() and read_quarantine(path) == {}


def test_what_is_no_file_is_never_replaced(tmp_path):
    write_quarantine(tmp_path, {})
    write_quarantine(tmp_path, {"a": ("b",)})
    assert tmp_path.is_dir()
    with pytest.raises(UsageError):
        read_quarantine(tmp_path)
