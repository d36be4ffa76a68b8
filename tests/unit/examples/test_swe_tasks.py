"""The repair tasks: the file is what the script writes, and every task is unsolved before its repair and solved after it."""

import asyncio
import importlib.util
import json
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentrl.api import ExitStatus, SandboxSpec
from agentrl_scaleswe.grader import ScaleSweGrader
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.tasks import ScaleSweFormat

EXAMPLE = Path(__file__).parents[3] / "examples" / "swe"
FORMAT = ScaleSweFormat(ScaleSweSettings())
TASKS = [FORMAT.read(json.loads(line)) for line in (EXAMPLE / "tasks.jsonl").read_text("utf-8").splitlines()]
AT_ONCE = 4


@pytest.fixture
def make_tasks():
    spec = importlib.util.spec_from_file_location("make_tasks", EXAMPLE / "make_tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def open_sandbox(local_backend):
    @asynccontextmanager
    async def opened():
        machine = await local_backend.create(SandboxSpec(image="host"), labels={"agentrl-run": "t"}, lifetime_sec=300)
        try:
            yield machine
        finally:
            await machine.close()

    return opened


async def of_all_tasks(check) -> dict[str, object]:
    """``check(task)`` of every task, a few at a time, by task id."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(task):
        async with room:
            return await check(task)

    results = await asyncio.gather(*map(one, TASKS))
    return {task.id: result for task, result in zip(TASKS, results, strict=True)}


def test_the_script_writes_the_same_bytes(make_tasks, tmp_path, monkeypatch):
    (tmp_path / "tasks").symlink_to(EXAMPLE / "tasks")
    monkeypatch.setattr(make_tasks, "HERE", tmp_path)
    make_tasks.main()
    assert (tmp_path / "tasks.jsonl").read_bytes() == (EXAMPLE / "tasks.jsonl").read_bytes()


def test_there_are_tasks_of_every_level_and_ids_are_unique():
    levels = Counter(task.level for task in TASKS)
    assert set(levels) == {"level-1", "level-2", "level-3", "level-4"}
    assert levels["level-1"] >= 10
    assert len({task.id for task in TASKS}) == len(TASKS) >= 24


def test_easy_issues_name_the_file_that_is_wrong():
    for task in TASKS:
        if task.level == "level-1":
            paths = [line.split()[-1].removeprefix("b/") for line in task.metadata["gold_patch"].splitlines()[:1]]
            assert any(path in task.problem for path in paths), task.id


async def test_the_base_commit_is_the_same_everywhere(open_sandbox):
    async def base(task):
        async with open_sandbox() as sandbox:
            return (await FORMAT.prepare(sandbox, task)).base_commit

    first, second = await base(TASKS[0]), await base(TASKS[0])
    assert first == second != ""


async def test_nothing_is_solved_before_the_repair(open_sandbox):
    async def exit_code(task):
        async with open_sandbox() as sandbox:
            await FORMAT.prepare(sandbox, task)
            done = await sandbox.exec(task.metadata["eval_cmd"], cwd=task.workdir, timeout_sec=300)
            return done.exit_code, b"FAILED" in done.stderr

    # 1 and FAILED: the tests ran. Anything else would be a broken task.
    assert await of_all_tasks(exit_code) == {task.id: (1, True) for task in TASKS}


async def test_everything_is_solved_by_its_repair(open_sandbox):
    grader = ScaleSweGrader(ScaleSweSettings())

    async def status(task):
        grade = await grader.grade(task, grader.gold(task), open_sandbox, timeout_sec=300)
        return grade.exit_status, grade.reward

    assert await of_all_tasks(status) == {task.id: (ExitStatus.SOLVED, 1.0) for task in TASKS}
