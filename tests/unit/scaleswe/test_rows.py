"""Rows become tasks, or an error that names the field."""

from __future__ import annotations

import json

import pytest

from agentrl.api import Resources, RowError
from agentrl_scaleswe.rows import read_row

METADATA = {"instance_id": "calc-1", "workdir": "/work/calc", "problem_statement": "mend it", "eval_cmd": "pytest -q"}
HARNESS = {"run_script": "run", "parser_script": "parse", "fail_to_pass": ["a"], "selected_test_files": ["t.py"]}


def row(**changes):
    return {"prompt": "please", "label": "l", "metadata": {**METADATA, **changes}}


def test_a_full_row():
    task = read_row(row(image="registry/x:1", level="easy", resources={"cpus": 2, "memory_mb": 512}, gold_patch="diff"))
    assert (task.id, task.protocol, task.problem, task.workdir) == ("calc-1", "scaleswe", "mend it", "/work/calc")
    assert (task.image, task.level, task.resources) == ("registry/x:1", "easy", Resources(cpus=2, memory_mb=512))
    assert task.metadata["eval_cmd"] == "pytest -q" and task.metadata["gold_patch"] == "diff"


def test_metadata_of_a_task_is_json():
    assert json.dumps(dict(read_row(row(eval_cmd=None, swepro=HARNESS)).metadata))


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("as text", "as text"),
        ([{"role": "system", "content": "no"}, {"role": "user", "content": "yes"}], "yes"),
        ([{"role": "user", "content": [{"type": "text", "text": "in parts"}]}], "in parts"),
    ],
)
def test_the_prompt_is_the_problem_when_no_statement_is_given(prompt, problem):
    assert read_row({**row(problem_statement=None), "prompt": prompt}).problem == problem


def test_the_label_names_a_task_without_instance_id():
    assert read_row(row(instance_id=None)).id == "l"


def test_remote_env_info_fills_what_metadata_leaves_open():
    remote = {"image_url": "far", "workdir": "/elsewhere", "f2p_script": "def test_x(): pass", "pre_commands": ["true"]}
    task = read_row(row(eval_cmd=None, remote_env_info=remote))
    assert (task.image, task.workdir) == ("far", "/work/calc")
    assert task.metadata["f2p_script"] == "def test_x(): pass" and task.metadata["pre_commands"] == "true"


@pytest.mark.parametrize(
    ("given", "script"),
    [
        (["a", "", "b"], "a\nb"),
        ("a\nprintf 'x\\n'", "a\nprintf 'x\\n'"),
        (r"git clean -fd\ngit checkout x", "git clean -fd\ngit checkout x"),
        (r"printf 'x\n' >f\necho \"a\nb\"", "printf 'x\\n' >f\necho \\\"a\nb\\\""),
        (None, ""),
    ],
)
def test_pre_commands_become_one_script(given, script):
    assert read_row(row(pre_commands=given)).metadata["pre_commands"] == script


def test_lists_may_be_spelled_as_text():
    task = read_row(row(eval_cmd=None, swepro={**HARNESS, "fail_to_pass": '["x", "y"]', "pass_to_pass": "['z']"}))
    assert task.metadata["swepro"]["fail_to_pass"] == ["x", "y"]
    assert task.metadata["swepro"]["pass_to_pass"] == ["z"]


def test_harness_scripts_may_lie_on_the_host(tmp_path):
    (tmp_path / "run.sh").write_text("from a file")
    harness = {**HARNESS, "run_script": None, "run_script_path": str(tmp_path / "run.sh")}
    assert read_row(row(eval_cmd=None, swepro=harness)).metadata["swepro"]["run_script"] == "from a file"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"workdir": None}, "metadata.workdir"),
        ({"workdir": "relative"}, "metadata.workdir"),
        ({"workdir": 7}, "metadata.workdir"),
        ({"eval_cmd": None}, "exactly one of"),
        ({"f2p_script": "x"}, "eval_cmd, f2p_script"),
        ({"eval_cmd": 3}, "metadata.eval_cmd"),
        ({"pre_commands": [1]}, "metadata.pre_commands"),
        ({"restore": "tests"}, "metadata.restore"),
        ({"resources": {"gpus": 1}}, "metadata.resources.gpus"),
        ({"resources": {"cpus": -1}}, "metadata.resources.cpus"),
        ({"eval_cmd": None, "swepro": {**HARNESS, "fail_to_pass": []}}, "metadata.swepro.fail_to_pass"),
        ({"eval_cmd": None, "swepro": {**HARNESS, "parser_script": ""}}, "metadata.swepro.parser_script"),
        ({"eval_cmd": None, "swepro": {**HARNESS, "run_script_path": "/absent"}}, "metadata.swepro.run_script_path"),
    ],
)
def test_a_bad_row_names_its_field(changes, named):
    with pytest.raises(RowError, match=named):
        read_row(row(**changes))


@pytest.mark.parametrize(
    "bad", [{}, {"metadata": []}, {"label": "x", "metadata": None}, {"prompt": 3, "metadata": {"workdir": "/w"}}]
)
def test_a_row_without_metadata_or_names_is_refused(bad):
    with pytest.raises(RowError):
        read_row(bad)
