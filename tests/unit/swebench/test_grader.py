"""The official verdict on real repositories, in real sandboxes."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from mortal import mortal, points
from packages_as_repositories import SHAPES

from agentrl.api import ExitStatus, GraderError, SandboxGone, Submission

MPMATH, SMMAP, SYMPY = SHAPES
FAST = (MPMATH, SMMAP)
ALL = (*FAST, pytest.param(SYMPY, marks=pytest.mark.slow))  # 900 files


@pytest.fixture
def judge(grader, task_of, open_for):
    async def grade(name, patch, *, timeout_sec=300, **columns):
        task = await task_of(name, **columns)
        return await grader.grade(task, Submission("", patch.encode()), open_for(task), timeout_sec=timeout_sec)

    return grade


@pytest.mark.parametrize("name", ALL)
async def test_the_gold_patch_solves(name, grader, task_of, open_for):
    task = await task_of(name)
    assert grader.check(task) is None
    grade = await grader.grade(task, grader.gold(task), open_for(task), timeout_sec=300)
    assert (grade.reward, grade.exit_status) == (1.0, ExitStatus.SOLVED), grade.details
    assert grade.details["partial"] == 1.0 and grade.details["broken"] == []
    assert grade.details["fail_to_pass"] == {"passed": 1, "total": 1}


@pytest.mark.parametrize("name", ALL)
async def test_a_wrong_patch_does_not(name, judge, instances):
    patch = instances[name].change("notes.txt", lambda _: "I tried.\n")
    grade = await judge(name, patch)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED)
    assert grade.details["fail_to_pass"] == {"passed": 0, "total": 1}
    assert SHAPES[name].fail_to_pass[0] in grade.details["not_passed"]
    assert grade.details["pass_to_pass"]["passed"] == len(SHAPES[name].pass_to_pass), grade.details


@pytest.mark.parametrize("name", FAST)
async def test_a_patch_that_breaks_other_tests_does_not(name, judge, instances):
    broken = {
        MPMATH: (
            "mpmath/libmp/libintmath.py",
            "    if bc != 300:\n        return bc\n",
            "    if bc != 300:\n        return 9\n",
        ),
        SMMAP: ("smmap/util.py", "        return self._size\n", "        return 7\n"),
    }
    path, old, new = broken[name]
    shape = SHAPES[name]

    def repaired_and_broken(text):
        assert old in text
        return text.replace(*reversed(shape.fault)).replace(old, new)

    grade = await judge(name, instances[name].change(path, repaired_and_broken))
    assert grade.exit_status is ExitStatus.UNSOLVED and grade.details["broken"], grade.details
    assert grade.details["partial"] == 0.0


async def test_an_empty_patch_costs_no_sandbox(judge, open_for):
    grade = await judge(SMMAP, "\n")
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.EMPTY_PATCH)
    assert open_for.opened == 0


async def test_a_patch_that_does_not_apply_is_rejected(judge):
    grade = await judge(SMMAP, "diff --git a/no.py b/no.py\n--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-a\n+b\n")
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.PATCH_REJECTED)


@pytest.mark.slow
async def test_a_runner_of_the_repository_is_put_back(judge, instances):
    runner = '#!/bin/sh\necho "test_multiset_partitions_versions ok"\n'
    grade = await judge(SYMPY, instances[SYMPY].change("bin/test", lambda _: runner))
    assert (grade.exit_status, grade.restored) == (ExitStatus.UNSOLVED, ("bin/test",))


async def test_what_decides_is_put_back_and_listed(judge, instances):
    repository = instances[MPMATH]
    hook = repository.change("conftest.py", lambda _: "raise SystemExit(3)\n")
    test = repository.change("mpmath/tests/test_bitwise.py", lambda _: "def test_trailing():\n    assert False\n")
    grade = await judge(MPMATH, repository.patch + hook + test)
    assert grade.exit_status is ExitStatus.SOLVED, grade.details
    assert set(grade.restored) == {"conftest.py", "mpmath/tests/test_bitwise.py"}


async def test_tests_that_never_end_are_a_verdict(judge, instances):
    patch = instances[SMMAP].change("smmap/__init__.py", lambda text: text + "\nimport time\ntime.sleep(600)\n")
    grade = await judge(SMMAP, patch, timeout_sec=4)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.TESTS_TIMED_OUT)


async def test_an_endless_log_is_no_pass(judge, instances):
    flood = "\nimport sys\nfor _ in range(40):\n    sys.stdout.write('x' * (1 << 20) + '\\n')\n"
    patch = instances[SMMAP].change("smmap/util.py", lambda text: text.replace(*reversed(SHAPES[SMMAP].fault)) + flood)
    grade = await judge(SMMAP, patch)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED)


async def test_without_its_command_the_image_is_to_blame(judge, instances):
    script = instances[SMMAP].row["eval_script"].replace("python -m unittest", "no-such-program")
    with pytest.raises(GraderError, match="did not start"):
        await judge(SMMAP, instances[SMMAP].patch, eval_script=script)


async def test_a_test_patch_that_does_not_apply_is_no_verdict(judge, instances):
    test_patch = instances[SMMAP].test_patch.replace("assert wc.ofs == 0\n", "assert wc.ofs == 1\n")
    with pytest.raises(GraderError, match="test_patch"):
        await judge(SMMAP, instances[SMMAP].patch, test_patch=test_patch)


async def test_a_machine_that_dies_is_no_verdict(grader, task_of, open_for, instances):
    task = await task_of(SMMAP)

    @asynccontextmanager
    async def dying():
        async with open_for(task)() as machine:
            await machine.close()
            yield machine

    with pytest.raises(SandboxGone):
        await grader.grade(task, Submission("", instances[SMMAP].patch.encode()), dying, timeout_sec=300)


async def test_a_machine_of_the_control_run_that_dies_is_no_verdict(grader, task_of, open_for):
    task = await task_of(SMMAP)
    whole = mortal(open_for(task), number=2)
    assert (await grader.grade(task, grader.gold(task), whole, timeout_sec=300)).reward == 1.0
    for last in points(whole.made[1].calls, 4):
        dying = mortal(open_for(task), number=2, last=last)
        with pytest.raises((SandboxGone, GraderError)):
            await grader.grade(task, grader.gold(task), dying, timeout_sec=300)


async def test_grades_of_one_submission_are_equal(judge, instances):
    grades = [await judge(SMMAP, instances[SMMAP].patch) for _ in range(3)]
    assert {(grade.reward, grade.exit_status, grade.restored) for grade in grades} == {(1.0, ExitStatus.SOLVED, ())}
