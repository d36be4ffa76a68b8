"""Three ways to a verdict, each in a sandbox that holds the start state with the agent's patch.

``eval_cmd``
    The command's exit code: 0 is solved.
``f2p_script``
    The file is written to ``test_fail_to_pass.py`` in the workdir. If it starts a runner itself (``pytest.main``,
    ``unittest.main``, ``__main__``) it is run by ``python``, else by ``python -m pytest``. Solved: exit code 0 and, where
    pytest is used at all, a report with at least one passed test and no failure; no report is a failure.
``swepro``
    The run script gets the selected files joined by commas; then the parser gets the logs of both streams and writes
    ``{"tests": [{"name", "status"}]}``. Solved: every required test is ``PASSED`` in it and nothing else; an absent one failed.

What can be counted is recorded as ``partial``.

The exit code is the one that :func:`agentrl.api.run_detached` vouches for by its nonce; nothing that tests print
is taken for it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentrl.api import (
    Control,
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
    run_commands,
    run_detached,
    sabotage,
)
from agentrl_scaleswe.control import F2P_FILE
from agentrl_scaleswe.start import split_before

TEST_ENV = {"TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
PARSER_TIMEOUT_SEC = 120.0
CHECKOUT_TIMEOUT_SEC = 120.0
_PYTHON = "$(command -v python || command -v python3)"
_PYTEST = re.compile(r"\b(pytest|py\.test)\b")
_OWN_RUNNER = re.compile(r"\b(pytest|unittest)\.main\(|__main__")
_COUNT = re.compile(rb'\b(tests|failures|errors|skipped)="(\d+)"')

Ready = Callable[[], Awaitable[None]]
"""Called when the tests are in place and about to run."""


class ParserError(GraderError):
    """The parser of a harness cannot make anything of its logs."""


async def judge(sandbox: Sandbox, task: Task, *, timeout_sec: float, control: Control | None = None) -> Grade:
    """Run the task's tests, made to fail for a ``control``. Raises: GraderError (no verdict), SandboxError."""

    async def ready() -> None:
        if control is not None:
            await sabotage(sandbox, task.workdir, control)

    match task.metadata:
        case {"eval_cmd": str(command)}:
            return await _by_command(sandbox, task, command, timeout_sec, ready)
        case {"f2p_script": str(script)}:
            return await _by_script(sandbox, task, script, timeout_sec, ready)
        case {"swepro": Mapping() as harness}:
            try:
                return await _by_harness(sandbox, task, harness, timeout_sec, ready)
            except ParserError as error:
                if control is None:
                    raise
                # Not made for a run without a pass.
                return Grade(0.0, ExitStatus.UNSOLVED, {"output": str(error)})
        case _:
            raise GraderError(f"task {task.id} names no way of grading")


async def _by_command(sandbox: Sandbox, task: Task, command: str, timeout_sec: float, ready: Ready) -> Grade:
    await ready()
    if not _PYTEST.search(command) or "junit" in command:
        result = await _run(sandbox, task, command, timeout_sec, {})
        return _grade(result, result.ok, {})
    report = f"{fresh_path()}.xml"
    asking = f'export PYTEST_ADDOPTS="${{PYTEST_ADDOPTS-}} --junitxml={report}"\n'
    result = await _run(sandbox, task, asking + command, timeout_sec, {})
    await kill_agent_processes(sandbox)
    return _grade(result, result.ok, _counted(await _report(sandbox, report)))


async def _by_script(sandbox: Sandbox, task: Task, script: str, timeout_sec: float, ready: Ready) -> Grade:
    await sandbox.write_file(f"{task.workdir}/{F2P_FILE}", script.encode())
    await ready()
    report = f"{fresh_path()}.xml"
    runner = "" if _OWN_RUNNER.search(script) or not re.search(r"\b(def|class) [Tt]est", script) else "-m pytest -q"
    env = {"PYTEST_ADDOPTS": f"-p no:cacheprovider --junitxml={report}"}
    result = await _run(sandbox, task, f"{_PYTHON} {runner} {F2P_FILE}", timeout_sec, env)
    if result.timed_out or not (runner or "pytest" in script):
        return _grade(result, result.ok, {})
    # Nothing that the tests left running may write the report.
    await kill_agent_processes(sandbox)
    counts = await _report(sandbox, report)
    ran = counts.get("tests", 0) - counts.get("skipped", 0)
    clean = ran > 0 and counts.get("failures") == 0 and counts.get("errors") == 0
    return _grade(result, result.ok and clean, _counted(counts))


def _counted(counts: Mapping[str, int]) -> dict[str, Any]:
    """Details of a report: its numbers, and the share of tests that passed."""
    ran = counts.get("tests", 0) - counts.get("skipped", 0)
    failed = counts.get("failures", 0) + counts.get("errors", 0)
    share = {"partial": max(0, ran - failed) / ran} if ran > 0 else {}
    return {"report": dict(counts), **share}


async def _report(sandbox: Sandbox, path: str) -> dict[str, int]:
    """What pytest counted; empty when it wrote no report."""
    try:
        data = await sandbox.read_file(path)
    except FileError:
        return {}
    suite = data[data.find(b"<testsuite ") :].partition(b"<testcase")[0]
    return {name.decode(): int(count) for name, count in _COUNT.findall(suite)}


async def _by_harness(
    sandbox: Sandbox, task: Task, harness: Mapping[str, Any], timeout_sec: float, ready: Ready
) -> Grade:
    _, checkout = split_before(harness)
    await run_commands(sandbox, task, "before_repo_set_cmd", checkout, timeout_sec=CHECKOUT_TIMEOUT_SEC)
    await ready()
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
    wanted, kept = set(harness["fail_to_pass"]), set(harness["pass_to_pass"])
    missing, broken = sorted((wanted | kept) - passed), sorted(kept - passed)
    details = {
        "not_passed": missing[:100],
        "broken": broken[:100],
        "passed": len(passed),
        "partial": 0.0 if broken else len(wanted & passed) / len(wanted),
    }
    return _grade(result, not missing, details)


async def _parse(sandbox: Sandbox, task: Task, parser: str, logs: str) -> set[str]:
    folder = fresh_path()
    await sandbox.write_file(f"{folder}/parser.py", parser.encode())
    command = f"{_PYTHON} {folder}/parser.py {logs}/stdout.log {logs}/stderr.log {folder}/result.json"
    result = await sandbox.exec(command, cwd=task.workdir, timeout_sec=PARSER_TIMEOUT_SEC)
    if not result.ok:
        kind = GraderError if result.timed_out or result.exit_code > 128 else ParserError
        said = _tail(result.stderr, 2000)
        raise kind(f"the parser of task {task.id} failed with exit code {result.exit_code}: {said}")
    try:
        tests = json.loads(await sandbox.read_file(f"{folder}/result.json"))["tests"]
        # A name that is reported with two results has not passed.
        failed = {test["name"] for test in tests if test["status"] != "PASSED"}
        return {test["name"] for test in tests} - failed
    except (FileError, ValueError, KeyError, TypeError) as error:
        raise ParserError(f"the parser of task {task.id} wrote no list of tests: {error!r}") from error


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
    shown = {"exit_code": result.exit_code, "output": _both(result), **details}
    return Grade(1.0 if status is ExitStatus.SOLVED else 0.0, status, shown)


def _tail(output: bytes, length: int) -> str:
    return output[-length:].decode(errors="replace").strip()


def _both(result: ExecResult) -> str:
    return "\n".join(part for part in (_tail(result.stdout, 4000), _tail(result.stderr, 4000)) if part)
