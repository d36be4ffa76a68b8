"""The verifier's rules, in real sandboxes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from mortal import mortal, points
from privileges import needs_root

from agentrl.api import ExitStatus, GraderError, SandboxGone, Submission
from agentrl.rollout.validate import IDLE_PATCH
from agentrl_harbor.control import control_of
from agentrl_harbor.grader import HarborGrader
from agentrl_harbor.settings import HarborSettings

SOLVED = "test -e /app/done && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt"


async def test_the_solution_runs_like_an_agent(make_task, grader, open_for):
    task = make_task(tests=SOLVED)
    grade = await grader.grade(task, grader.gold(task), open_for(task), timeout_sec=300)
    assert (grade.reward, grade.exit_status) == (1.0, ExitStatus.SOLVED), grade.details
    assert open_for.opened == 2  # one to solve, one to judge


async def test_a_solution_that_fails_is_no_verdict(make_task, grader, open_for):
    task = make_task(tests=SOLVED, files={"solution/solve.sh": "echo why; exit 3"}.items())
    with pytest.raises(GraderError, match=r"ended with 3: why"):
        await grader.grade(task, grader.gold(task), open_for(task), timeout_sec=300)


def test_without_a_solution_there_is_no_gold(make_task, grader):
    task = make_task()
    Path(task.metadata["folder"], "solution", "solve.sh").unlink()
    assert grader.gold(task) is None


async def test_nothing_carried_costs_no_sandbox(make_task, grader, open_for, nothing):
    task = make_task(tests=SOLVED)
    assert (await grader.grade(task, nothing, open_for(task), timeout_sec=300)).exit_status is ExitStatus.EMPTY_PATCH
    assert open_for.opened == 0


REWARDS = {
    "a number": ("echo 0.25 >reward.txt", 0.25),
    "a number without end of line": ("printf 1 >reward.txt", 1.0),
    "json wins": ('echo 0 >reward.txt; echo \'{"reward": 0.5, "speed": 7}\' >reward.json', 0.5),
    "the only one": ("echo '{\"accuracy\": 0.75}' >reward.json", 0.75),
    "the exit code counts for nothing": ("echo 1 >reward.txt; exit 9", 1.0),
}


@pytest.mark.parametrize("name", REWARDS)
async def test_the_reward_is_what_the_tests_wrote(name, make_task, judge):
    script, reward = REWARDS[name]
    grade = await judge(make_task(tests=f"cd /logs/verifier; {script}"), "true")
    assert grade.reward == reward and grade.details["partial"] == reward
    assert grade.exit_status is (ExitStatus.SOLVED if reward == 1 else ExitStatus.UNSOLVED)


NO_REWARDS = {
    "nothing": ("true", "neither"),
    "an empty file": (": >reward.txt", "no reward"),
    "a word": ("echo passed >reward.txt", "no reward"),
    "no finite number": ("echo nan >reward.txt", "not finite"),
    "infinity in json": ("echo '{\"reward\": Infinity}' >reward.json", "not finite"),
    "too much": ("echo 1.5 >reward.txt", "between 0 and 1"),
    "too little": ("echo -- -1 >reward.txt; echo -1 >reward.txt", "between 0 and 1"),
    "no object": ("echo 1 >reward.json", "not an object"),
    "a truth": ("echo '{\"reward\": true}' >reward.json", "no number"),
    "several without a reward": ('echo \'{"a": 1, "b": 0}\' >reward.json', "called `reward`"),
    "bad json is not forgiven": ("echo 1 >reward.txt; echo '{' >reward.json", "no reward"),
    "a folder": ("mkdir reward.txt", "cannot be read"),
    "not utf-8": ("printf '\\xff' >reward.txt", "no reward"),
}


@pytest.mark.parametrize("name", NO_REWARDS)
async def test_anything_else_is_no_verdict(name, make_task, judge):
    script, complaint = NO_REWARDS[name]
    with pytest.raises(GraderError, match=complaint):
        await judge(make_task(tests=f"cd /logs/verifier; {script}"), "true")


CHEATS = {
    "writes the reward": "mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt",
    "writes it where it is carried": "mkdir -p /carried; echo 1 >/carried/reward.json",
    "replaces the tests": "mkdir -p /tests; echo 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh",
    "links the workdir's name": "ln -s /logs/verifier link; mkdir -p /logs/verifier; echo 1 >link/reward.txt",
    "leaves a writer behind": "setsid sh -c 'while :; do echo 1 >/logs/verifier/reward.txt; done' >/dev/null 2>&1 &",
    "shims a program": "printf '#!/bin/sh\\nexit 0\\n' >/usr/local/bin/test; chmod +x /usr/local/bin/test",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_root) if name == "shims a program" else name for name in CHEATS]
)
async def test_a_cheat_earns_nothing(name, make_task, judge):
    tests = "if env test -e /app/done; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"
    task = make_task(tests=tests, toml='artifacts = ["/carried", "/logs/verifier"]')
    grade = await judge(task, CHEATS[name])
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED), grade.details


# The usual test.sh, and a module of the agent's that its tests import.
IN_PROCESS = {
    "tests/test_outputs.py": (
        "import sys, unittest\nsys.path.insert(0, '/app')\nfrom calc import add\n\n\n"
        "class TestAdd(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    )
}
UNITTEST = "cd /tests\npython3 -m unittest \\\n  /tests/test_outputs.py\n"
REWARD = "if [ $? -eq 0 ]; then echo 1 >/logs/verifier/reward.txt; {otherwise} fi"
REWARDS_ZERO = UNITTEST + REWARD.format(otherwise="else echo 0 >/logs/verifier/reward.txt;")
ONLY_ONE = UNITTEST + REWARD.format(otherwise="")
INSIDE = {
    "leaves early": "import os; os._exit(0)",
    "makes assertions quiet": "import unittest; unittest.TestCase.assertEqual = lambda *_: None",
    "writes the reward at the end": (
        "import atexit, os\n"
        "atexit.register(lambda: (open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}'), os._exit(0)))"
    ),
}


@pytest.mark.parametrize("name", INSIDE)
async def test_the_control_run_sees_through_code_under_test(name, make_task, grader, open_for, work):
    task = make_task(tests=REWARDS_ZERO, files=IN_PROCESS.items())
    submission = await work(task, f"cat >calc.py <<'X'\n{INSIDE[name]}\ndef add(a, b):\n    return a - b\nX")
    trusting = HarborGrader(HarborSettings(control_run=False))
    assert (await trusting.grade(task, submission, open_for(task), timeout_sec=300)).reward == 1.0
    grade = await grader.grade(task, submission, open_for(task), timeout_sec=300)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED)
    assert "made to fail" in grade.details["control"]


async def test_the_control_run_sees_through_a_program_in_the_runners_place(make_task, grader, open_for, work):
    task = make_task(tests=REWARDS_ZERO.replace("cd /tests", "cd /app"), files=IN_PROCESS.items())
    submission = await work(task, "mkdir unittest; echo 'raise SystemExit' >unittest/__init__.py")
    trusting = HarborGrader(HarborSettings(control_run=False))
    assert (await trusting.grade(task, submission, open_for(task), timeout_sec=300)).reward == 1.0
    assert (await grader.grade(task, submission, open_for(task), timeout_sec=300)).reward == 0.0


@pytest.mark.parametrize("tests", [REWARDS_ZERO, ONLY_ONE])
async def test_honest_work_passes_the_control_run(tests, make_task, judge, open_for):
    task = make_task(tests=tests, files=IN_PROCESS.items())
    grade = await judge(task, "printf 'def add(a, b):\\n    return a + b\\n' >calc.py")
    assert (grade.reward, open_for.opened) == (1.0, 3), grade.details


async def test_a_machine_of_the_control_run_that_dies_is_no_verdict(make_task, grader, open_for, work):
    task = make_task(tests=REWARDS_ZERO, files=IN_PROCESS.items())
    honest = await work(task, "printf 'def add(a, b):\\n    return a + b\\n' >calc.py")
    whole = mortal(open_for(task), number=2)
    assert (await grader.grade(task, honest, whole, timeout_sec=300)).reward == 1.0
    for last in points(whole.made[1].calls, 4):
        dying = mortal(open_for(task), number=2, last=last)
        with pytest.raises((SandboxGone, GraderError)):
            await grader.grade(task, honest, dying, timeout_sec=300)


@pytest.mark.parametrize(
    ("tests", "named"),
    [
        ("uvx pytest $TEST_DIR/test_outputs.py -rA", ["test_outputs.py"]),
        ("pytest --ctrf /logs/verifier/ctrf.json /tests", ["test_more.py", "test_outputs.py"]),
        ("# pytest\npython3 /tests/judge.py", None),
    ],
)
def test_what_can_be_made_to_fail(tests, named, make_task):
    files = dict.fromkeys(("tests/test_outputs.py", "tests/test_more.py", "tests/judge.py"), "pass\n")
    control = control_of(make_task(tests=tests, files=files.items()))
    assert (control and control.targets.tests) == named


async def test_tests_that_never_end_are_a_verdict(make_task, judge):
    grade = await judge(make_task(tests="echo 1 >/logs/verifier/reward.txt; sleep 600"), "true", timeout_sec=2)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.TESTS_TIMED_OUT)


async def test_the_tasks_own_limit_holds_too(make_task, judge):
    task = make_task(tests="sleep 600", toml="[verifier]\ntimeout_sec = 2")
    assert (await judge(task, "true")).exit_status is ExitStatus.TESTS_TIMED_OUT


async def test_a_patch_reaches_a_workdir_without_repository(make_task, grader, open_for):
    tests = "test -e /app/.agentrl-idle && test ! -e /app/.git && echo 1 >/logs/verifier/reward.txt"
    task = make_task(tests=tests)
    grade = await grader.grade(task, Submission("", IDLE_PATCH), open_for(task), timeout_sec=300)
    assert grade.exit_status is ExitStatus.SOLVED, grade.details


async def test_a_patch_that_does_not_apply_is_rejected(make_task, grader, open_for):
    task = make_task(tests=SOLVED)
    patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    grade = await grader.grade(task, Submission("", patch), open_for(task), timeout_sec=300)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.PATCH_REJECTED)


async def test_a_machine_that_dies_is_no_verdict(make_task, grader, open_for, work):
    task = make_task(tests=SOLVED)

    @asynccontextmanager
    async def dying():
        async with open_for(task)() as machine:
            await machine.close()
            yield machine

    with pytest.raises(SandboxGone):
        await grader.grade(task, await work(task, "touch done"), dying, timeout_sec=300)


def test_tests_that_fetch_are_refused_before_anything_is_paid_for(make_task, grader):
    task = make_task(tests="apt-get update\ncurl -LsSf https://example.org/install.sh | sh")
    assert "`apt-get update`" in grader.check(task)
    assert HarborGrader(HarborSettings(fetches="try")).check(task) is None


def test_a_task_of_another_protocol_is_refused(make_task, grader):
    assert "scaleswe" in grader.check(replace(make_task(), protocol="scaleswe"))


def test_a_task_without_tests_is_refused(make_task, grader):
    task = make_task()
    Path(task.metadata["folder"], "tests", "test.sh").unlink()
    assert "tests/test.sh" in grader.check(task)
