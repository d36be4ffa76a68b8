"""The example rows: the file is what the script writes, and every task is fit."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from agentrl.rollout.validate import validate

EXAMPLE = Path(__file__).parents[3] / "examples" / "swebench"


@pytest.fixture
def make_rows():
    spec = importlib.util.spec_from_file_location("make_rows", EXAMPLE / "make_rows.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_writes_the_same_bytes(make_rows, tmp_path, monkeypatch):
    (tmp_path / "tasks").symlink_to(EXAMPLE / "tasks")
    monkeypatch.setattr(make_rows, "HERE", tmp_path)
    make_rows.main()
    assert (tmp_path / "tasks.jsonl").read_bytes() == (EXAMPLE / "tasks.jsonl").read_bytes()


async def test_all_of_them_are_fit(protocol, grader, open_for):
    tasks = [protocol.read(json.loads(line)) for line in (EXAMPLE / "tasks.jsonl").read_text("utf-8").splitlines()]
    rows = validate(tasks, protocol, grader, lambda task: open_for(task)(), repeats=1, concurrency=2, timeout_sec=300)
    assert {row.task_id: row.reasons async for row in rows} == {task.id: () for task in tasks}
    assert len({task.metadata["row"]["log_parser"] for task in tasks}) == len(tasks) == 3


async def test_the_agent_starts_from_the_rows_commit(protocol, open_for):
    task = protocol.read(json.loads((EXAMPLE / "tasks.jsonl").read_text("utf-8").splitlines()[0]))
    async with open_for(task)() as machine:
        prepared = await protocol.prepare(machine, task)
        assert prepared.base_commit == task.metadata["row"]["base_commit"]
        await machine.exec(
            "git commit -q --allow-empty -m mine; echo x >new; rm -r tests", cwd=task.workdir, timeout_sec=60
        )
        patch = (await protocol.collect(machine, task, prepared)).patch
    assert b"+++ b/new" in patch and b"deleted file mode" in patch
