"""Three ways to a verdict, each in a sandbox that holds the start state with the agent's patch.

``eval_cmd``
    The command's exit code: 0 is solved.
``f2p_script``
    The file is written to ``test_fail_to_pass.py`` in the workdir. If it starts a runner itself (``pytest.main``,
    ``unittest.main``, ``__main__``) it is run by ``python``, else by ``python -m pytest``. Solved: exit code 0 and, where
    pytest is used at all, a report with at least one passed test and no failure; no report is a failure.
``swepro``
    The run script gets the selected files joined by commas; then the parser gets the logs of both streams and writes
    ``{"tests": [{"name", "status"}]}``. Solved: every required test is ``PASSED`` in it; an absent one failed.

The exit code is the one that :func:`agentrl.api.run_detached` vouches for by its nonce; nothing that tests print
is taken for it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from agentrl.api import (
    ExecResult,
    ExitStatus,
    FileError,
    Grade,
    GraderError,
    Sandbox,
    SandboxError,
    Task,
    fresh_path,
    kill_agent_processes,
    run_detached,
)
from agentrl_scaleswe.start import both, run_commands, split_before, tail

TEST_ENV = {"TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
F2P_FILE = "test_fail_to_pass.py"
PARSER_TIMEOUT_SEC = 120.0
CHECKOUT_TIMEOUT_SEC = 120.0
_PYTHON = "$(command -v python || command -v python3)"
_OWN_RUNNER = re.compile(r"\b(pytest|unittest)\.main\(|__main__")
_COUNT = re.compile(rb'\b(tests|failures|errors|skipped)="(\d+)"')


async def judge(sandbox: Sandbox, task: Task, *, timeout_sec: float) -> Grade:
    """Run the task's tests. Raises: GraderError (no verdict), SandboxError."""
    match task.metadata:
        case {"eval_cmd": str(command)}:
            return await _by_command(sandbox, task, command, timeout_sec)
        case {"f2p_script": str(script)}:
            return await _by_script(sandbox, task, script, timeout_sec)
        case {"swepro": Mapping() as harness}:
            return await _by_harness(sandbox, task, harness, timeout_sec)
        case _:
            raise GraderError(f"task {task.id} names no way of grading")


async def _by_command(sandbox: Sandbox, task: Task, command: str, timeout_sec: float) -> Grade:
    result = await _run(sandbox, task, command, timeout_sec, {})
    return _grade(result, result.ok, {})


async def _by_script(sandbox: Sandbox, task: Task, script: str, timeout_sec: float) -> Grade:
    await sandbox.write_file(f"{task.workdir}/{F2P_FILE}", script.encode())
    report = f"{fresh_path()}.xml"
    runner = "" if _OWN_RUNNER.search(script) or not re.search(r"\b(def|class) [Tt]est", script) else "-m pytest -q"
    env = {"PYTEST_ADDOPTS": f"-p no:cacheprovider --junitxml={report}"}
    result = await _run(sandbox, task, f"{_PYTHON} {runner} {F2P_FILE}", timeout_sec, env)
    if result.timed_out or not (runner or "pytest" in script):
        return _grade(result, result.ok, {})
    counts = await _report(sandbox, report)
    passed = counts.get("tests", 0) - counts.get("skipped", 0)
    clean = passed > 0 and counts.get("failures") == 0 and counts.get("errors") == 0
    return _grade(result, result.ok and clean, {"report": counts})


async def _report(sandbox: Sandbox, path: str) -> dict[str, int]:
    """What pytest counted; empty when it wrote no report."""
    try:
        data = await sandbox.read_file(path)
    except FileError:
        return {}
    suite = data[data.find(b"<testsuite ") :].partition(b"<testcase")[0]
    return {name.decode(): int(count) for name, count in _COUNT.findall(suite)}


async def _by_harness(sandbox: Sandbox, task: Task, harness: Mapping[str, Any], timeout_sec: float) -> Grade:
    _, checkout = split_before(harness)
    await run_commands(sandbox, task, "before_repo_set_cmd", checkout, timeout_sec=CHECKOUT_TIMEOUT_SEC)
    folder = fresh_path()
    await sandbox.write_file(f"{folder}/run_script.sh", harness["run_script"].encode(), mode=0o755)
    selected = shlex.quote(",".join(harness["selected_test_files"]))
    command = f"bash {folder}/run_script.sh {selected} >{folder}/stdout.log 2>{folder}/stderr.log"
    result = await _run(sandbox, task, command, timeout_sec, {})
    if result.timed_out:
        return _grade(result, False, {})
    # The parser arrives when nothing of the tests is left to meddle with it.
    await kill_agent_processes(sandbox)
    passed = await _parse(sandbox, task, harness["parser_script"], folder)
    missing = sorted({*harness["fail_to_pass"], *harness["pass_to_pass"]} - passed)
    return _grade(result, not missing, {"not_passed": missing[:100], "passed": len(passed)})


async def _parse(sandbox: Sandbox, task: Task, parser: str, logs: str) -> set[str]:
    folder = fresh_path()
    await sandbox.write_file(f"{folder}/parser.py", parser.encode())
    command = f"{_PYTHON} {folder}/parser.py {logs}/stdout.log {logs}/stderr.log {folder}/result.json"
    result = await sandbox.exec(command, cwd=task.workdir, timeout_sec=PARSER_TIMEOUT_SEC)
    if not result.ok:
        raise GraderError(
            f"the parser of task {task.id} failed with exit code {result.exit_code}: {tail(result.stderr)}"
        )
    try:
        tests = json.loads(await sandbox.read_file(f"{folder}/result.json"))["tests"]
        return {test["name"] for test in tests if test["status"] == "PASSED"}
    except (FileError, ValueError, KeyError, TypeError) as error:
        raise GraderError(f"the parser of task {task.id} wrote no list of tests: {error!r}") from error


async def _run(sandbox: Sandbox, task: Task, command: str, timeout_sec: float, env: Mapping[str, str]) -> ExecResult:
    try:
        return await run_detached(sandbox, command, cwd=task.workdir, env={**TEST_ENV, **env}, timeout_sec=timeout_sec)
    except SandboxError as error:
        if type(error) is not SandboxError:
            raise
        raise GraderError(f"the tests of task {task.id} left no verdict: {error}") from error


def _grade(result: ExecResult, solved: bool, details: Mapping[str, Any]) -> Grade:
    status = ExitStatus.SOLVED if solved else ExitStatus.UNSOLVED
    if result.timed_out:
        status = ExitStatus.TESTS_TIMED_OUT
    shown = {"exit_code": result.exit_code, "output": both(result), **details}
    return Grade(1.0 if status is ExitStatus.SOLVED else 0.0, status, shown)
