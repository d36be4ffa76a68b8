"""Which commands have a control run, and that tests made to fail do fail."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agentrl.tools.control import read_command
from agentrl.tools.sabotage import sabotaged


@pytest.mark.parametrize(
    ("command", "scripts", "tests"),
    [
        ("python3 -I tests/test_a.py", ["tests/test_a.py"], []),
        ("TZ=UTC python -W error -X dev check.py --fast", ["check.py"], []),
        ("python -m pytest -q tests/test_a.py::TestA::test_b[x]", [], ["tests/test_a.py"]),
        ("cd sub && python3.11 -m unittest tests.test_a", [], ["sub/tests.test_a"]),
        ("make build && pytest -q", [], ["."]),
        ("/opt/venv/bin/pytest a b", [], ["a", "b"]),
    ],
)
def test_plain_commands_name_their_tests(command, scripts, tests):
    found = read_command(command)
    assert (found.scripts, found.tests) == (scripts, tests)


@pytest.mark.parametrize(
    "command",
    [
        "npm test",
        "pytest || true",
        "! pytest",
        "pytest | tee log",
        "python -c 'import x'",
        "pytest $(cat list)",
        "pytest 'a",
        "",
    ],
)
def test_what_the_shell_decides_has_no_control(command):
    assert read_command(command) is None


UNITTEST = '''\
"""Docs."""
from __future__ import annotations
import unittest

class TestBase(unittest.TestCase):
    @unittest.skipIf(False, "")
    def test_one(self): pass
    async def helper(self): pass

class TestMore(TestBase, unittest.IsolatedAsyncioTestCase):
    async def test_two(self):
        return None

if __name__ == "__main__":
    unittest.main()
'''


def run(tmp_path, source, *argv):
    (tmp_path / "test_x.py").write_bytes(source)
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    return subprocess.run([sys.executable, *argv], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "argv",
    [
        ["test_x.py"],
        ["-m", "unittest", "test_x"],
        ["-O", "-m", "unittest", "test_x"],
        ["-m", "pytest", "-q", "test_x.py"],
    ],
)
def test_every_test_of_a_file_fails(tmp_path, argv):
    assert run(tmp_path, UNITTEST.encode(), *argv).returncode == 0
    failed = run(tmp_path, sabotaged(UNITTEST.encode(), script=True), *argv)
    assert failed.returncode == 1
    assert "3 failed" in failed.stdout or "failures=3" in failed.stderr


def test_plain_functions_with_fixtures_and_parameters_fail(tmp_path):
    source = b"import pytest\n@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x, tmp_path):\n    assert x\n"
    assert run(tmp_path, source, "-m", "pytest", "-q").returncode == 0
    assert "2 failed" in run(tmp_path, sabotaged(source, script=False), "-m", "pytest", "-q").stdout


def test_a_script_fails_at_its_end_and_not_before(tmp_path):
    source = b"from __future__ import annotations\nimport sys\nprint('here')\nsys.exit(0)\n"
    ended = run(tmp_path, sabotaged(source, script=True), "test_x.py")
    assert (ended.returncode, ended.stdout) == (99, "here\n")


def test_what_was_changed_may_not_end_a_script(tmp_path):
    (tmp_path / "ours.py").write_text("import sys; sys.exit(0)")
    (tmp_path / "run.py").symlink_to("ours.py")
    source = b"import run\nraise ValueError\n"
    for changed, code in (((), 99), ((f"{tmp_path}/run.py",), 0)):
        made = sabotaged(source, script=True, changed=changed)
        assert run(tmp_path, made, "test_x.py").returncode == code


@pytest.mark.parametrize("source", [b"print 'two'", b"\xff", b"x = 1\n"])
def test_what_holds_no_tests_is_left_alone(source):
    assert sabotaged(source, script=False) is None
