"""The example plugin does what its README says, in a real sandbox."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentrl.api import ExitStatus, GraderError, RowError, SandboxSpec, Submission

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"
ROWS = [json.loads(line) for line in (EXAMPLE / "tasks.jsonl").read_text().splitlines()]


@pytest.fixture
def protocol(monkeypatch):
    """(task format, grader), imported as if the example was installed."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from agentrl_example_grader.grader import LineCountGrader
    from agentrl_example_grader.settings import LineCountSettings
    from agentrl_example_grader.task_format import LineCountFormat

    yield LineCountFormat(LineCountSettings(max_bytes=1000)), LineCountGrader()
    for name in [name for name in sys.modules if name.partition(".")[0] == "agentrl_example_grader"]:
        del sys.modules[name]


@pytest.fixture
def open_sandbox(local_backend):
    @asynccontextmanager
    async def opened():
        sandbox = await local_backend.create(SandboxSpec(), labels={"agentrl-run": "test"}, lifetime_sec=300)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    return opened


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_a_solution_passes_and_nothing_does_not(protocol, open_sandbox, row):
    task_format, grader = protocol
    task = task_format.read(row)
    assert grader.check(task) is None
    grade = await grader.grade(task, grader.gold(task), open_sandbox, timeout_sec=60)
    assert (grade.reward, grade.exit_status) == (1.0, ExitStatus.SOLVED)
    nothing = await grader.grade(task, Submission("", b""), open_sandbox, timeout_sec=60)
    assert (nothing.reward, nothing.exit_status) == (0.0, ExitStatus.EMPTY_PATCH)


async def test_work_in_a_sandbox_is_collected_and_judged(protocol, open_sandbox, sandbox):
    task_format, grader = protocol
    task = task_format.read(ROWS[1])
    prepared = await task_format.prepare(sandbox, task)
    done = await sandbox.exec("grep ERROR app.log > errors.txt", cwd=task.workdir, timeout_sec=60)
    assert done.ok, done.stderr
    submission = await task_format.collect(sandbox, task, prepared)
    assert submission.artefacts["errors.txt"].startswith(b"ERROR 1\n")
    assert (await grader.grade(task, submission, open_sandbox, timeout_sec=60)).reward == 1.0
    wrong = Submission("", b"", {"errors.txt": b"one line\n"})
    grade = await grader.grade(task, wrong, open_sandbox, timeout_sec=60)
    assert (grade.reward, grade.exit_status, grade.details) == (0.0, ExitStatus.UNSOLVED, {"lines": 1})


@pytest.mark.parametrize("command", [":", "mkdir greeting.txt", "mkfifo greeting.txt", "seq 1000 > greeting.txt"])
async def test_what_is_no_small_file_is_no_submission(protocol, sandbox, command):
    task_format, _ = protocol
    task = task_format.read(ROWS[0])
    prepared = await task_format.prepare(sandbox, task)
    assert (await sandbox.exec(command, cwd=task.workdir, timeout_sec=60)).ok
    assert (await task_format.collect(sandbox, task, prepared)).artefacts == {}


async def test_a_task_whose_setup_fails_has_no_grade(protocol, open_sandbox):
    task_format, grader = protocol
    task = task_format.read({**ROWS[0], "setup": "echo no disk >&2; exit 3"})
    with pytest.raises(GraderError, match="no disk"):
        await grader.grade(task, grader.gold(task), open_sandbox, timeout_sec=60)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"id": 7}, "'id'"),
        ({"expect": None}, "'expect'"),
        ({"expect": {"path": "a"}}, "'lines'"),
        ({"expect": {"path": "a", "lines": True}}, "'lines'"),
        ({"expect": {"path": "../a", "lines": 1}}, "inside workdir"),
        ({"expect": {"path": "/etc/passwd", "lines": 1}}, "inside workdir"),
    ],
)
def test_bad_rows_name_the_field(protocol, change, word):
    with pytest.raises(RowError, match=word):
        protocol[0].read({**ROWS[0], **change})


def test_a_task_that_can_never_be_graded_is_refused_before_anything_is_paid_for(protocol):
    task_format, grader = protocol
    assert grader.check(task_format.read({**ROWS[0], "expect": {"path": "a", "lines": -1}}))
