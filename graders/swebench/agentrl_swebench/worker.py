"""The official ``swebench`` package behind a pipe. Run as a program: one JSON object a line in, one a line out.

Not imported by anything: the package reads ``.env`` files, takes a second to import and prints as it goes, so it
gets a process of its own. ``swebench`` 5 grades rows that bring their eval script; ``swebench`` 4.1 makes the script itself.

    {"do": "spec", "row"}                                 → {"setup", "tests", "eval_type"}: the two halves of the eval script
    {"do": "report", "row", "log", "exit_code", "junit"}  → {"resolved", "FAIL_TO_PASS", "PASS_TO_PASS", "refuted", "remark"}

A failure is answered as ``{"error"}``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

# The last words of runners that have no report of their own: a process that ends with 0 before them was cut short.
CLOSING = {
    "parse_log_django": re.compile(r"^Ran \d+ tests? in .*\n(?!(.*\n)*FAILED \()", re.MULTILINE),
    "parse_log_sympy": re.compile(r"^=+ tests finished: ", re.MULTILINE),
}
FAILURES = (ImportError, LookupError, ValueError, TypeError, AttributeError, AssertionError, SyntaxError)


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the package prints is no answer
    verbs: dict[str, Callable[..., Any]] = {"spec": spec, "report": report}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": verbs[request.pop("do")](**request)}
        except FAILURES as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def spec(row: dict[str, Any]) -> dict[str, str]:
    """What runs before the tests, the tests, and how the row wants to be judged."""
    from swebench.harness import constants

    made = _test_spec(row)
    lines = made.eval_script.splitlines()
    starts = [number for number, line in enumerate(lines) if constants.START_TEST_OUTPUT in line]
    ends = [number for number, line in enumerate(lines) if constants.END_TEST_OUTPUT in line]
    if len(starts) != 1 or len(ends) != 1 or starts[0] > ends[0]:
        raise ValueError("the eval script does not mark one start and one end of the tests")
    kept = getattr(constants, "TEST_EXIT_CODE_VAR", "\0") + "="
    tests = [line for line in lines[starts[0] + 1 : ends[0]] if not line.startswith(kept)]
    return {
        "setup": "\n".join(lines[: starts[0]]),
        "tests": "\n".join(tests),
        "eval_type": getattr(made, "eval_type", "") or _eval_type(row),
    }


def report(row: dict[str, Any], log: str, exit_code: int, junit: str | None) -> dict[str, Any]:
    """The official verdict on a log of the tests. ``junit``: pytest's own report, empty if it wrote none, None if not asked."""
    from swebench.harness.grading import get_eval_report

    made = _test_spec(row)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".log") as file:
        file.write(_marked(log, exit_code))
        file.flush()
        prediction = {"instance_id": row["instance_id"], "model_name_or_path": "agentrl", "model_patch": "patch"}
        verdict = get_eval_report(made, prediction, file.name, include_tests_status=True)[row["instance_id"]]
    nothing = {name: {"success": [], "failure": getattr(made, name)} for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    status = verdict.get("tests_status", nothing)
    claimed = {*status["FAIL_TO_PASS"]["success"], *status["PASS_TO_PASS"]["success"]}
    return {
        "resolved": verdict["resolved"],
        "FAIL_TO_PASS": status["FAIL_TO_PASS"],
        "PASS_TO_PASS": status["PASS_TO_PASS"],
        "refuted": _cut_short(made, log, exit_code) if junit is None else _refuted(junit, exit_code, claimed),
        "remark": "" if "tests_status" in verdict else verdict.get("infra_failure_reason", "no results in the log"),
    }


def _test_spec(row: dict[str, Any]) -> Any:
    """Whichever release is installed."""
    try:
        from swebench.harness.test_spec.test_spec import TestSpec
    except ImportError:
        return _test_spec_5(row)
    from swebench.harness.constants import MAP_REPO_TO_EXT, MAP_REPO_VERSION_TO_SPECS
    from swebench.harness.test_spec.create_scripts import make_eval_script_list

    # Not make_test_spec: it also plans images, and asks GitHub for requirements to do so.
    repo, version, base = row["repo"], row["version"], row["base_commit"]
    specs = MAP_REPO_VERSION_TO_SPECS[repo][version]
    script = make_eval_script_list(row, specs, "testbed", "/testbed", base, row["test_patch"])
    parts = {"repo_script_list": [], "env_script_list": [], "eval_script_list": script}
    tests = {name: row[name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    names = {"instance_id": row["instance_id"], "repo": repo, "version": version, "language": MAP_REPO_TO_EXT[repo]}
    return TestSpec(**names, **parts, **tests, arch="x86_64", docker_specs={}, namespace="swebench")


def _test_spec_5(row: dict[str, Any]) -> Any:
    from swebench.harness.utils import make_test_spec

    lacking = [name for name in ("eval_script", "log_parser", "eval_type") if not row.get(name)]
    if lacking:
        raise ValueError(
            f"the row has no {', '.join(lacking)}: swebench 5 needs them, so take a data set published for it, "
            "or install 'swebench<5' for rows as they were before"
        )
    return make_test_spec({"image": "", "version": "", **row})


def _eval_type(row: dict[str, Any]) -> str:
    from swebench.harness.constants import FAIL_ONLY_REPOS

    return "fail_only" if row["repo"] in FAIL_ONLY_REPOS else "pass_and_fail"


def _marked(log: str, exit_code: int) -> str:
    """A log as the official harness would have written it. What the tests printed cannot pass for a marker."""
    from swebench.harness import constants

    text = log.replace(">>>>>", ">>>>")
    ending = getattr(constants, "TEST_EXIT_CODE", "")
    tail = f"{ending}: {exit_code}\n" if ending else ""
    return f"+ : '{constants.START_TEST_OUTPUT}'\n{text}\n+ : '{constants.END_TEST_OUTPUT}'\n{tail}"


def _cut_short(made: Any, log: str, exit_code: int) -> str:
    """Why a run that claims success cannot be one; empty if it can."""
    name = getattr(made, "log_parser", "")
    if not name:
        from swebench.harness.log_parsers import MAP_REPO_TO_PARSER

        name = MAP_REPO_TO_PARSER[made.repo].__name__
    closing = CLOSING.get(name)
    return "" if exit_code or not closing or closing.search(log) else "the tests ended with 0 before their runner did"


def _refuted(junit: str, exit_code: int, claimed: set[str]) -> str:
    """Why pytest's own report contradicts a log that claims these tests passed; empty if it does not."""
    if exit_code not in (0, 1):
        return ""
    try:
        cases = list(ElementTree.fromstring(junit).iter("testcase"))
    except ElementTree.ParseError:
        return "pytest ended without its report"
    failed = {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    if exit_code == 0 and failed:
        return f"pytest ended with 0 although its report has failures: {sorted(failed)[:10]}"
    denied = sorted(test for test in claimed if _in_report(test) in failed)
    return f"pytest's report has failures of {denied[:10]}" if denied else ""


def _in_report(test: str) -> str:
    """``tests/test_a.py::TestB::test_c[x]`` → ``tests.test_a.TestB::test_c[x]``."""
    head, bracket, parameters = test.partition("[")
    path, *names = head.split("::")
    if not names:
        return test
    return ".".join([path.removesuffix(".py").replace("/", "."), *names[:-1]]) + f"::{names[-1]}{bracket}{parameters}"


if __name__ == "__main__":
    main()
