"""Golden logs: each log parser that the installed package ships gives its verdicts through our worker."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agentrl_swebench.official import Official

LOGS = tomllib.loads(Path(__file__).with_name("parsers.toml").read_text())


@pytest.fixture(scope="module")
def official():
    return Official()


@pytest.fixture
def judge(official):
    """Whether a row that requires ``tests`` is resolved by the golden log of ``parser``."""

    def resolved(parser, tests, exit_code):
        golden = LOGS[parser]
        only_failures = not golden.get("passed")
        row = {
            "instance_id": golden.get("id", "a__b-1"),
            "repo": "a/b",
            "base_commit": "0",
            "test_patch": "-",
            "version": golden.get("version", "1.0"),
            "FAIL_TO_PASS": tests,
            "PASS_TO_PASS": [],
            "eval_script": ": '>>>>> Start Test Output'\nrun\n: '>>>>> End Test Output'\n",
            "eval_type": "fail_only" if only_failures else "pass_and_fail",
            "log_parser": parser,
        }
        return official.ask("report", row=row, log=golden["log"], exit_code=exit_code, junit=None)["resolved"]

    return resolved


def test_every_family_of_the_package_has_a_golden_log():
    script = (
        "import json; from swebench import PARSER_REGISTRY as r; "
        "print(json.dumps({name: parser.__name__ for name, parser in r.items()}))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout.splitlines()[-1]).values()) == set(LOGS)


@pytest.mark.parametrize("parser", LOGS)
def test_what_passed_is_resolved_and_what_failed_is_not(parser, judge):
    golden = LOGS[parser]
    if passed := golden.get("passed"):
        assert judge(parser, passed, 1)
        assert not judge(parser, ["a test that never ran"], 1)
    for test in golden["failed"]:
        assert not judge(parser, [*golden.get("passed", []), test], 1), test
