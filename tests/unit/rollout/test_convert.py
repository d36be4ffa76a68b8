from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from repair import repair_row

from agentrl.errors import RowError
from agentrl.plugins import load_plugins
from agentrl.registry import Registry
from agentrl.rollout.convert import convert, row_of, write_rows
from agentrl.settings import resolve

SWEBENCH = {
    "instance_id": "django__django-1",
    "repo": "django/django",
    "base_commit": "a" * 40,
    "patch": "",
    "test_patch": "diff --git a/t.py b/t.py\n",
    "problem_statement": "It is slow.",
    "version": "3.0",
    "FAIL_TO_PASS": '["test_a (tests.A)"]',
    "PASS_TO_PASS": "[]",
    "image": "registry/django:1",
    "log_parser": "parse_log_django",
    "eval_type": "pass_and_fail",
    "eval_script": "true",
}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins(resolve({})).registry


class Judge:
    """Grades everything."""

    def check(self, task: Any) -> str | None:
        return None


def converted(registry: Registry, protocol: str, source: Path, to: str) -> tuple[Any, list[dict[str, Any]]]:
    task_format = registry.build(registry.get("task_formats", protocol))
    return task_format, convert(source, task_format, Judge(), to=to)


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("to", ["slime", "miles"])
@pytest.mark.parametrize(
    ("protocol", "source"),
    [("scaleswe", "examples/swe/tasks.jsonl"), ("harbor", "examples/harbor/tasks"), ("swebench", "")],
)
def test_a_converted_row_leads_back_to_its_task(registry, tmp_path, protocol, source, to):
    path = Path(__file__).parents[3] / source if source else lines(tmp_path / "rows.jsonl", SWEBENCH)
    task_format, rows = converted(registry, protocol, path, to)
    assert rows
    for row in json.loads(json.dumps(rows)):
        assert row.keys() == {"prompt", "label", "metadata"}
        task = task_format.read(row_of(row["metadata"], prompt=row["prompt"], label=row["label"]))
        assert row["prompt"] == [{"role": "user", "content": task.problem}]
        assert row["label"] == task.id


def test_an_agent_function_of_miles_needs_the_metadata_only(registry, tmp_path):
    row = repair_row("by-label")
    del row["metadata"]["instance_id"]
    task_format, [made] = converted(registry, "scaleswe", lines(tmp_path / "rows.jsonl", row), "miles")
    assert task_format.read(row_of(made["metadata"], prompt=made["prompt"])).id == "by-label"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"prompt": "<|im_start|>user\nMend it.<|im_end|>"}, "some chat template made it"),
        ({"prompt": [{"role": "user", "content": "[INST] Mend it."}]}, "some chat template made it"),
        ({"prompt": [{"role": "user"}]}, "list of messages"),
        ({"prompt": 7}, "list of messages"),
        ({"metadata": "text"}, "metadata"),
    ],
)
def test_wrong_shapes_are_refused_with_their_number(registry, tmp_path, wrong, complaint):
    source = lines(tmp_path / "rows.jsonl", repair_row("good"), {**repair_row("bad"), **wrong})
    with pytest.raises(RowError, match=complaint) as refusal:
        converted(registry, "scaleswe", source, "slime")
    assert str(refusal.value).startswith(f"{source}:2: ")


def test_an_id_may_be_used_once(registry, tmp_path):
    with pytest.raises(RowError, match=r":2: id 'same' is used in line 1"):
        converted(registry, "scaleswe", lines(tmp_path / "rows.jsonl", repair_row("same"), repair_row("same")), "slime")


def test_an_empty_source_is_an_error(registry, tmp_path):
    with pytest.raises(RowError, match="no task at all"):
        converted(registry, "scaleswe", lines(tmp_path / "rows.jsonl"), "slime")


def test_rows_are_written_as_lines(tmp_path):
    write_rows(tmp_path / "out.jsonl", [{"a": 1}, {"b": "ä"}])
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [{"a": 1}, {"b": "ä"}]
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
