"""The child process: it starts when asked, answers, explains itself, and is started again when it died."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agentrl.api import GraderError
from agentrl_swebench.grader import SweBenchGrader
from agentrl_swebench.official import Official
from agentrl_swebench.settings import SweBenchSettings
from agentrl_swebench.tasks import SweBenchFormat

SCRIPT = "#!/bin/bash\ncd /testbed\n{setup}\n: '>>>>> Start Test Output'\npytest -rA\n: '>>>>> End Test Output'\ngit checkout .\n"
ROW = {
    "instance_id": "a__b-1",
    "repo": "a/b",
    "base_commit": "0",
    "test_patch": "-",
    "problem_statement": "-",
    "version": "1.0",
    "FAIL_TO_PASS": ["t.py::a"],
    "PASS_TO_PASS": [],
    "eval_script": SCRIPT.format(setup="true"),
    "eval_type": "pass_and_fail",
    "log_parser": "parse_log_pytest",
}
FAILED = '<testsuites><testsuite><testcase classname="t" name="a"><failure/></testcase></testsuite></testsuites>'
CLEAN = '<testsuites><testsuite><testcase classname="t" name="a"/></testsuite></testsuites>'


@pytest.fixture(scope="module")
def official():
    return Official()


def test_the_eval_script_comes_in_halves(official):
    spec = official.ask("spec", row=ROW)
    assert (spec["setup"], spec["tests"]) == ("#!/bin/bash\nset -uxo pipefail\ncd /testbed\ntrue", "pytest -rA")


def judged(official, log, exit_code=0, junit=None):
    verdict = official.ask("report", row=ROW, log=log, exit_code=exit_code, junit=junit)
    return verdict["resolved"] and not verdict["refuted"]


def test_markers_that_tests_print_have_no_power(official):
    forged = ">>>>> Start Test Output\nPASSED t.py::a\n>>>>> End Test Output\n>>>>> Test Exit Code: 0\n"
    assert judged(official, "PASSED t.py::a\n")
    assert not judged(official, f"{forged}FAILED t.py::a - no\n", exit_code=1)
    assert not judged(official, f"{forged}collected 0 items\n", exit_code=5)


def test_pytests_own_report_is_a_witness(official):
    assert judged(official, "PASSED t.py::a\n", junit=CLEAN)
    assert not judged(official, "PASSED t.py::a\n", junit=FAILED)
    assert not judged(official, "PASSED t.py::a\nFAILED t.py::b\n", exit_code=1, junit=FAILED)
    assert not judged(official, "PASSED t.py::a\n", junit="")
    assert not judged(official, "PASSED t.py::a\n", junit="<testsuites><testsuite>")


def test_a_refusal_says_what_to_do(official):
    with pytest.raises(GraderError, match=r"no eval_script.*install 'swebench<5'"):
        official.ask("spec", row={**ROW, "eval_script": ""})
    with pytest.raises(GraderError, match="one start"):
        official.ask("spec", row={**ROW, "eval_script": "pytest"})
    assert official.ask("spec", row=ROW)


def test_it_is_started_again():
    official = Official()
    assert official.ask("spec", row=ROW)
    official._process.kill()
    official._process.wait()
    assert official.ask("spec", row=ROW)


def test_its_last_words_are_told(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no such library' >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(GraderError, match=r"ended with 3: no such library"):
        Official(str(program)).ask("spec", row=ROW)


def test_our_process_imports_nothing_of_it():
    script = (
        "import sys, json, logging; from agentrl_swebench.grader import SweBenchGrader as G; "
        "from agentrl_swebench.settings import SweBenchSettings as S; "
        "G(S())._official.ask('spec', row=json.loads(sys.argv[1])); "
        "print([m for m in ('swebench', 'datasets', 'docker', 'modal', 'pandas') if m in sys.modules], logging.root.handlers)"
    )
    done = subprocess.run([sys.executable, "-c", script, json.dumps(ROW)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


@pytest.fixture(scope="module")
def check():
    grader, protocol = SweBenchGrader(SweBenchSettings()), SweBenchFormat(SweBenchSettings())
    return lambda **columns: grader.check(protocol.read({**ROW, **columns}))


def test_a_sound_row_has_no_reason(check):
    assert check() is None


def test_scripts_that_fetch_are_said_so(check):
    reason = check(eval_script=SCRIPT.format(setup="python -m pip install -e ."))
    assert "`python -m pip install -e .`" in reason and "SWE_GRADING_FETCHES=try" in reason
    lenient = SweBenchGrader(SweBenchSettings(fetches="try"))
    task = SweBenchFormat(SweBenchSettings()).read({**ROW, "eval_script": SCRIPT.format(setup="npm ci")})
    assert lenient.check(task) is None


def test_rows_that_take_absent_tests_for_passed_are_refused(check):
    assert "never ran" in check(eval_type="fail_only")


def test_rows_without_script_are_refused(check):
    assert "eval_script" in check(eval_script=None)
