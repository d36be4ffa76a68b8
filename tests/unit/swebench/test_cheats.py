"""Ways to a pass without the work, tried for real: each earns nothing, and would earn if what stops it were not there."""

from __future__ import annotations

import pytest
from packages_as_repositories import SHAPES

from agentrl.api import ExitStatus, Submission

MPMATH, SMMAP, _ = SHAPES
RULES = "agentrl_swebench.protect"

PASSED = "\\n".join(f"PASSED {test}" for test in (*SHAPES[MPMATH].fail_to_pass, *SHAPES[MPMATH].pass_to_pass))
OK = "\\n".join(f"{test} ... ok" for test in (*SHAPES[SMMAP].fail_to_pass, *SHAPES[SMMAP].pass_to_pass))
FORGED = ">>>>> Start Test Output\\n{lines}\\n>>>>> End Test Output\\n>>>>> Test Exit Code: 0"
# pytest keeps the real standard output under another number while it captures.
LEAVE = """\
import os, sys
if any("{runner}" in word for word in sys.orig_argv):
    for number in range(1, 20):
        try:
            os.write(number, b"\\n{forged}\\n")
        except OSError:
            pass
    os._exit(0)
"""
AT_EXIT = 'import atexit, os\natexit.register(lambda: (print("\\n{forged}", flush=True), os._exit(0)))\n'
HOOK = """\
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    call.excinfo = None
    yield
"""
IDLE_PYTEST = 'import sys\nif "_pytest.python" in sys.modules:\n    sys.modules["_pytest.python"].Function.runtest = lambda self: None\n'
REPORT = """\
import os, re, sys
path = re.search(r"--junitxml=(\\S+)", os.environ.get("PYTEST_ADDOPTS", ""))
if path:
    with open(path[1], "w") as file:
        file.write('<testsuites><testsuite><testcase classname="mpmath.tests.test_bitwise" name="test_trailing"/></testsuite></testsuites>')
"""


def runs_first(text):
    """A change that puts ``text`` in front of what is there."""
    return lambda before: text + before


def becomes(text):
    return lambda _: text


# What the official verdict and its witnesses see through by themselves.
OBVIOUS = {
    "leaves early with forged lines": (MPMATH, "mpmath/__init__.py", LEAVE.format(runner="pytest", forged=PASSED)),
    "leaves early with forged markers": (
        *(MPMATH, "mpmath/__init__.py"),
        LEAVE.format(runner="pytest", forged=FORGED.format(lines=PASSED)),
    ),
    "says last that all passed": (MPMATH, "mpmath/__init__.py", AT_EXIT.format(forged=PASSED)),
    "forges markers at the end": (MPMATH, "mpmath/__init__.py", AT_EXIT.format(forged=FORGED.format(lines=PASSED))),
    "unittest leaves early with forged lines": (SMMAP, "smmap/__init__.py", LEAVE.format(runner="unittest", forged=OK)),
    "unittest is told last that all passed": (SMMAP, "smmap/__init__.py", AT_EXIT.format(forged=OK)),
}

# What only the control run sees through: code under test at work in the process of its tests.
INSIDE = {
    "pytest runs nothing": (MPMATH, "mpmath/__init__.py", IDLE_PYTEST),
    "pytest's reports are rewritten": (
        *(MPMATH, "mpmath/__init__.py"),
        'import sys\nif "_pytest.runner" in sys.modules:\n'
        '    kind = sys.modules["_pytest.runner"].CallInfo\n    made = kind.from_call.__func__\n'
        "    def from_call(cls, func, when, **known):\n        info = made(cls, func, when, **known)\n"
        "        info.excinfo = None\n        return info\n    kind.from_call = classmethod(from_call)\n",
    ),
    "leaves early with a forged report": (
        *(MPMATH, "mpmath/__init__.py"),
        REPORT + LEAVE.format(runner="pytest", forged=PASSED),
    ),
    "unittest calls nothing": (
        *(SMMAP, "smmap/__init__.py"),
        "import unittest\nunittest.TestCase._callTestMethod = lambda self, method: None\n",
    ),
    "failures count as successes": (
        *(SMMAP, "smmap/__init__.py"),
        "import unittest\nkind = unittest.TextTestResult\nkind.addFailure = lambda self, test, error: self.addSuccess(test)\n",
    ),
    "leaves early with the runner's last words": (
        *(SMMAP, "smmap/__init__.py"),
        LEAVE.format(runner="unittest", forged=f"{OK}\\nRan 2 tests in 0.001s\\n\\nOK"),
    ),
    "leaves at exit with the runner's last words": (
        *(SMMAP, "smmap/__init__.py"),
        AT_EXIT.format(forged=f"{OK}\\nRan 2 tests in 0.001s\\n\\nOK"),
    ),
}

# What is put back before the tests run: the files, and the rule without which they would earn.
IDLE = "import unittest\nunittest.TestCase._callTestMethod = lambda self, method: None\n"
PLANTED = {
    "hooks pytest at the top": (MPMATH, {"conftest.py": HOOK}, f"{RULES}.configures_tests"),
    "hooks pytest beside the tests": (MPMATH, {"mpmath/conftest.py": HOOK}, f"{RULES}.configures_tests"),
    "asks for a plugin": (
        MPMATH,
        {"tox.ini": "[pytest]\naddopts = -p planted\n", "planted.py": HOOK},
        f"{RULES}.configures_tests",
    ),
    "stands in for pytest": (
        MPMATH,
        {"pytest.py": REPORT + f'print("{PASSED}")\n'},
        f"{RULES}.stands_in",
    ),
    "stands in for unittest": (
        SMMAP,
        {"unittest/__init__.py": f'print("{OK}\\nRan 2 tests in 0.001s")\nraise SystemExit\n'},
        f"{RULES}.stands_in",
    ),
    "sits among the tests": (SMMAP, {"smmap/test/__init__.py": IDLE}, f"{RULES}.looks_like_test"),
    "hides behind .gitignore": (
        MPMATH,
        {".gitignore": "__pycache__/\nconftest.py\n", "conftest.py": HOOK},
        "agentrl.tools.protect.patched_paths",
    ),
}


@pytest.fixture
def attempt(task_of, open_for, instances):
    """The grade that a grader gives to changed files, by path."""

    async def grade(judge, name, changes):
        task = await task_of(name)
        patch = "".join(instances[name].change(path, change) for path, change in changes.items())
        return await judge.grade(task, Submission("", patch.encode()), open_for(task), timeout_sec=300)

    return grade


@pytest.mark.parametrize("name", OBVIOUS)
async def test_the_verdict_sees_through(name, attempt, trusting):
    instance, path, text = OBVIOUS[name]
    grade = await attempt(trusting, instance, {path: runs_first(text)})
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED), grade.details


@pytest.mark.parametrize("name", INSIDE)
async def test_the_control_run_sees_through(name, attempt, grader, trusting):
    instance, path, text = INSIDE[name]
    believed = await attempt(trusting, instance, {path: runs_first(text)})
    assert believed.reward == 1.0, believed.details["output"]
    grade = await attempt(grader, instance, {path: runs_first(text)})
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED), grade.details
    assert "made to fail" in grade.details["control"]


@pytest.mark.parametrize("name", PLANTED)
async def test_what_decides_is_put_back(name, attempt, trusting, monkeypatch):
    instance, files, rule = PLANTED[name]
    changes = {path: becomes(text) for path, text in files.items()}
    grade = await attempt(trusting, instance, changes)
    assert (grade.reward, grade.exit_status) == (0.0, ExitStatus.UNSOLVED), grade.details
    assert grade.restored
    monkeypatch.setattr(rule, lambda _: ())
    without = await attempt(trusting, instance, changes)
    assert without.reward == 1.0, without.details["output"]


async def test_a_plugin_asked_for_in_pyproject_is_taken_out(attempt, trusting, monkeypatch):
    asking = '[tool.pytest.ini_options]\naddopts = "-p planted"\n'
    changes = {"pyproject.toml": becomes(asking), "planted.py": becomes(HOOK)}
    monkeypatch.setattr(f"{RULES}._ALSO", ())
    grade = await attempt(trusting, MPMATH, changes)
    assert (grade.reward, grade.restored) == (0.0, ("pyproject.toml",)), grade.details
    monkeypatch.setattr("agentrl.tools.protect.pytest_section", lambda path, content: None)
    assert (await attempt(trusting, MPMATH, changes)).reward == 1.0


async def test_an_edited_test_is_replaced(attempt, trusting):
    edited = {"mpmath/tests/test_bitwise.py": becomes("def test_trailing():\n    pass\n")}
    grade = await attempt(trusting, MPMATH, edited)
    assert (grade.exit_status, grade.restored) == (ExitStatus.UNSOLVED, (*edited,))
