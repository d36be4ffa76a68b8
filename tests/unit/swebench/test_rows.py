"""Rows become tasks, or say what is wrong."""

from __future__ import annotations

import json

import pytest

from agentrl.api import RowError
from agentrl_swebench.rows import read_row

ROW = {
    "instance_id": "django__django-11099",
    "repo": "django/django",
    "base_commit": "d26b2424437dabeeca94d7900b37d2df4410da0c",
    "patch": "",
    "test_patch": "diff --git a/tests/a.py b/tests/a.py\n",
    "problem_statement": "It fails.",
    "version": "3.0",
    "FAIL_TO_PASS": '["test_a (x.T)"]',
    "PASS_TO_PASS": ["test_b (x.T)"],
}


def test_lists_may_be_json_texts():
    row = read_row(ROW).metadata["row"]
    assert (row["FAIL_TO_PASS"], row["PASS_TO_PASS"]) == (["test_a (x.T)"], ["test_b (x.T)"])


def test_the_image_is_the_settings_the_rows_or_the_official_one():
    assert read_row(ROW).image == "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"
    assert read_row({**ROW, "image": "mine:1"}).image == "mine:1"
    mirror = "mirror.example/sweb.eval.x86_64.{instance_id}:v2"
    assert read_row({**ROW, "image": "mine:1"}, image=mirror).image == mirror.format(
        instance_id="django_1776_django-11099"
    )
    assert read_row({**ROW, "instance_id": "Org__Repo-1"}).image == "swebench/sweb.eval.x86_64.org_1776_repo-1:latest"


def test_the_workdir_is_where_the_benchmark_has_it():
    assert read_row(ROW).workdir == "/testbed"
    assert read_row({**ROW, "workdir": "/repo"}).workdir == "/repo"


def test_commands_may_be_lines():
    assert read_row({**ROW, "pre_commands": ["a", "b"]}).metadata["pre_commands"] == "a\nb"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("instance_id", ""),
        ("repo", None),
        ("base_commit", 7),
        ("test_patch", " \n"),
        ("problem_statement", ""),
        ("FAIL_TO_PASS", "[]"),
        ("FAIL_TO_PASS", "test_a"),
        ("PASS_TO_PASS", json.dumps({"a": 1})),
        ("PASS_TO_PASS", [1]),
        ("workdir", "repo"),
        ("pre_commands", 5),
    ],
)
def test_a_wrong_column_is_named(column, value):
    with pytest.raises(RowError, match=column):
        read_row({**ROW, column: value})
