"""Only the work is scored, and whatever cannot be judged is an error, never a 0."""

from __future__ import annotations

import asyncio

import pytest
from mortal import mortal, points

from agentrl.api import ExitStatus, GraderError, SandboxGone, Submission, Task

MEND = "sed -i 's/a - b/a + b/' calc.py"
WAIT_SEC = 300


async def test_gold_passes(grader, task, open_sandbox):
    grade = await grader.grade(task(), grader.gold(task()), open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.exit_status) == (1.0, ExitStatus.SOLVED)


async def test_an_agents_repair_passes_and_its_log_too(grader, task, open_sandbox, submit):
    submission = await submit(task(), f"{MEND}; git -c user.name=a -c user.email=a commit -qam done; echo note >NOTES")
    grade = await grader.grade(task(), submission, open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.restored) == (1.0, ())


async def test_an_empty_patch_costs_no_sandbox(grader, task, open_sandbox):
    grade = await grader.grade(task(), Submission("", b"\n"), open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.exit_status, open_sandbox.opened) == (0.0, ExitStatus.EMPTY_PATCH, 0)


async def test_a_patch_that_does_not_apply_is_a_verdict(grader, task, open_sandbox):
    grade = await grader.grade(task(), Submission("", b"diff --git nonsense\n"), open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.PATCH_REJECTED)


async def test_tests_that_never_end_are_a_verdict(grader, task, open_sandbox, submit):
    submission = await submit(task(), "printf 'import time\\ntime.sleep(600)\\n' >calc.py")
    grade = await grader.grade(task(), submission, open_sandbox, timeout_sec=1)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.TESTS_TIMED_OUT)


async def test_what_is_put_back_is_listed(grader, task, open_sandbox, submit):
    cheat = "mkdir fake; echo >fake/check.py; rm -r tests; ln -s fake tests; echo 'raise SystemExit' >conftest.py"
    grade = await grader.grade(task(), await submit(task(), cheat), open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED)
    assert set(grade.restored) == {"tests", "tests/check.py", "tests/helper.py", "conftest.py"}


async def test_what_the_task_names_is_restored(grader, task, open_sandbox, submit):
    named = task(eval_cmd="python3 tests/check.py && test -e artefact.o", restore=["artefact.o"])
    grade = await grader.grade(named, await submit(named, f"{MEND}; rm artefact.o"), open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.restored) == (1.0, ("artefact.o",))


FORGE = r"""
import glob, time
for folder in glob.glob("/tmp/agentrl-*"):
    for name in ("exit.new", "exit"):
        with open(folder + "/" + name, "w") as file:
            file.write("0" * 32 + " 0\n")
time.sleep(600)
"""


async def test_a_forged_end_marker_is_no_verdict(grader, task, open_sandbox, submit):
    submission = await submit(task(), f"cat >calc.py <<'X'\n{FORGE}\nX")
    with pytest.raises(GraderError, match="marker"):
        await grader.grade(task(), submission, open_sandbox, timeout_sec=WAIT_SEC)


async def test_killing_the_runner_is_no_verdict(grader, task, open_sandbox, submit):
    kill = "import os, signal\nfor pid in (int(p) for p in os.listdir('/proc') if p.isdigit() and p != '1'):\n"
    kill += "    if pid != os.getpid(): os.kill(pid, signal.SIGKILL)\n"
    submission = await submit(task(), f"cat >calc.py <<'X'\n{kill}\nX")
    with pytest.raises(GraderError, match="no verdict"):
        await grader.grade(task(), submission, open_sandbox, timeout_sec=WAIT_SEC)


async def test_a_sandbox_that_dies_in_mid_test_is_an_error(grader, task, open_sandbox):
    slow = task(eval_cmd="touch /tmp/started; sleep 600")

    async def kill_when_started():
        while True:
            await asyncio.sleep(0.05)
            if open_sandbox.opened and (await open_sandbox.last.exec("test -e /tmp/started", timeout_sec=60)).ok:
                return await open_sandbox.last.close()

    killer = asyncio.create_task(kill_when_started())
    with pytest.raises(SandboxGone):
        await grader.grade(slow, grader.gold(slow), open_sandbox, timeout_sec=WAIT_SEC)
    await killer


async def test_a_machine_of_the_control_run_that_dies_is_no_verdict(grader, task, open_sandbox):
    whole = mortal(open_sandbox, number=2)
    assert (await grader.grade(task(), grader.gold(task()), whole, timeout_sec=WAIT_SEC)).reward == 1.0
    for last in points(whole.made[1].calls, 4):
        dying = mortal(open_sandbox, number=2, last=last)
        with pytest.raises((SandboxGone, GraderError)):
            await grader.grade(task(), grader.gold(task()), dying, timeout_sec=WAIT_SEC)


async def test_the_environment_of_tests_is_fixed(grader, task, open_sandbox):
    fixed = task(eval_cmd='test "$TZ $PYTHONHASHSEED $PYTHONDONTWRITEBYTECODE" = "UTC 0 1"')
    assert (await grader.grade(fixed, grader.gold(fixed), open_sandbox, timeout_sec=WAIT_SEC)).reward == 1.0


async def test_a_broken_start_state_is_an_error(grader, task, open_sandbox):
    with pytest.raises(GraderError, match="pre_commands failed"):
        await grader.grade(task(pre_commands="exit 3"), grader.gold(task()), open_sandbox, timeout_sec=WAIT_SEC)


async def test_another_protocol_is_refused_before_a_sandbox_is_paid_for(grader, task, open_sandbox):
    foreign = Task("x", "harbor", "p", "/w")
    assert "harbor" in grader.check(foreign)
    assert grader.check(task()) is None
    with pytest.raises(GraderError):
        await grader.grade(foreign, Submission("", b"x"), open_sandbox, timeout_sec=WAIT_SEC)
    assert open_sandbox.opened == 0


def test_a_task_without_gold_has_none(grader, task):
    assert grader.gold(task(gold_patch=None)) is None


@pytest.mark.slow
async def test_one_submission_graded_twenty_times_gives_twenty_equal_grades(grader, task, open_sandbox, submit):
    submission = await submit(task(), MEND)
    bound = asyncio.Semaphore(3)

    async def grade():
        async with bound:
            return await grader.grade(task(), submission, open_sandbox, timeout_sec=WAIT_SEC)

    first, *others = await asyncio.gather(*(grade() for _ in range(20)))
    assert others == [first] * 19
    assert first.reward == 1.0


# ------------------------------------------------------------------------------------------------- test files

SELF_RUNNING = """\
import unittest
from calc import add


class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)


if __name__ == "__main__":
    unittest.main()
"""

# Stands in for pytest, which the machine need not have: it runs test_* of one file and writes the report it was asked for.
LITTLE_PYTEST = """\
import os, re, runpy, sys
report = re.search(r"--junitxml=(\\S+)", os.environ["PYTEST_ADDOPTS"])[1]
tests = [f for n, f in runpy.run_path(sys.argv[-1]).items() if n.startswith("test_")]
failures = 0
for test in tests:
    try:
        test()
    except AssertionError:
        failures += 1
with open(report, "w") as file:
    file.write(f'<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="{failures}" '
               f'skipped="0" tests="{len(tests)}" time="0.1"><testcase name="test_add"/></testsuite></testsuites>')
sys.exit(failures > 0)
"""
PLAIN = "import sys; sys.path.insert(0, '.')\nfrom calc import add\n\ndef test_add():\n    assert add(2, 3) == 5\n"


async def test_a_file_with_its_own_runner_is_run(grader, task, open_sandbox, submit):
    scripted = task(eval_cmd=None, f2p_script=SELF_RUNNING)
    assert (await grader.grade(scripted, grader.gold(scripted), open_sandbox, timeout_sec=WAIT_SEC)).reward == 1.0
    wrong = await submit(scripted, "echo '# no' >>calc.py")
    assert (await grader.grade(scripted, wrong, open_sandbox, timeout_sec=WAIT_SEC)).reward == 0.0


@pytest.fixture
def plain(task):
    """A task graded by a plain file of tests."""
    place = "$(python3 -c 'import site; print(site.getusersitepackages())')"
    install = f'mkdir -p "{place}" && cat >"{place}/pytest.py" <<"X"\n{LITTLE_PYTEST}X\n'
    return task(eval_cmd=None, f2p_script=PLAIN, pre_commands=task().metadata["pre_commands"] + install)


async def test_a_plain_file_of_tests_is_given_to_pytest(grader, plain, open_sandbox, submit):
    grade = await grader.grade(plain, grader.gold(plain), open_sandbox, timeout_sec=WAIT_SEC)
    assert grade.reward == 1.0, grade.details
    assert grade.details["report"] == {"errors": 0, "failures": 0, "skipped": 0, "tests": 1}


async def test_leaving_early_without_a_report_does_not_earn(grader, plain, open_sandbox, submit):
    submission = await submit(plain, "printf 'import os\\nos._exit(0)\\n' >calc.py")
    grade = await grader.grade(plain, submission, open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.details["exit_code"], grade.details["report"]) == (0.0, 0, {})


# -------------------------------------------------------------------------------------------- SWE-bench Pro harness

RUN = """\
for file in $(echo "$1" | tr , ' '); do
    python3 $file && echo "PASSED $file" || echo "FAILED $file"
done
echo noise >&2
exit 3
"""
PARSER = """\
import json, sys
rows = [line.split() for line in open(sys.argv[1]) if line.startswith(("PASSED", "FAILED"))]
assert "noise" in open(sys.argv[2]).read()
json.dump({"tests": [{"name": name, "status": status} for status, name in rows]}, open(sys.argv[3], "w"))
"""


COMMIT = "git -c user.name=t -c user.email=t commit -qm"
HIDDEN = f"""\
git init -q; git add -A; {COMMIT} base
printf 'import sys\\nsys.path.insert(0, ".")\\nimport calc\\nsys.exit(calc.add(1, 1) != 2)\\n' >tests/hidden.py
git add -A; {COMMIT} future; git tag future; git reset -q --hard HEAD~1
"""


@pytest.fixture
def harness(task):
    """A task graded by a harness whose second test lies in a future commit."""

    def make(**changes):
        swepro = {
            "run_script": RUN,
            "parser_script": PARSER,
            "selected_test_files": ["tests/check.py", "tests/hidden.py"],
            "before_repo_set_cmd": "git checkout future -- tests/hidden.py",
            "fail_to_pass": ["tests/check.py"],
            "pass_to_pass": ["tests/hidden.py"],
        }
        made = task().metadata["pre_commands"] + HIDDEN
        return task(eval_cmd=None, pre_commands=made, swepro={**swepro, **changes})

    return make


async def test_a_harness_passes_when_every_required_test_did(grader, harness, open_sandbox):
    grade = await grader.grade(harness(), grader.gold(harness()), open_sandbox, timeout_sec=WAIT_SEC)
    assert grade.reward == 1.0, grade.details


async def test_hidden_tests_are_hidden_from_the_agent_and_not_its_to_write(grader, harness, open_sandbox, submit):
    look = "test ! -e tests/hidden.py && ! git cat-file -e future"
    submission = await submit(harness(), f"{look} && echo >tests/hidden.py && echo >tests/check.py")
    grade = await grader.grade(harness(), submission, open_sandbox, timeout_sec=WAIT_SEC)
    assert grade.reward == 0.0
    assert grade.details["not_passed"] == ["tests/check.py", "tests/hidden.py"]
    assert set(grade.restored) == {"tests/check.py", "tests/hidden.py"}


async def test_a_required_test_that_is_absent_failed(grader, harness, open_sandbox):
    absent = harness(pass_to_pass=["tests/never_run.py"])
    grade = await grader.grade(absent, grader.gold(absent), open_sandbox, timeout_sec=WAIT_SEC)
    assert (grade.reward, grade.details["not_passed"]) == (0.0, ["tests/never_run.py"])


@pytest.mark.parametrize("parser", ["raise SystemExit(1)", "pass", "import sys; open(sys.argv[3], 'w').write('[1]')"])
async def test_a_parser_that_fails_is_no_verdict(grader, harness, open_sandbox, parser):
    with pytest.raises(GraderError, match="parser"):
        await grader.grade(harness(parser_script=parser), grader.gold(harness()), open_sandbox, timeout_sec=WAIT_SEC)
