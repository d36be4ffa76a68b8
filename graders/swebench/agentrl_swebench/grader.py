"""The judging half of the protocol: a patch in, the official verdict out.

The eval script runs in two halves, the setup and the tests, each with an output file of its own: there are no markers
that a test could print, and what the setup prints is never parsed. The exit code is the one that
:func:`agentrl.api.run_detached` vouches for. Where pytest runs the tests it is asked for its own report as well, and a log
that its report contradicts is worth nothing. What code of the repository does inside the test process is left to the control
run (:func:`agentrl.api.believed`).
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any

from agentrl.api import (
    Control,
    ExecResult,
    ExitStatus,
    FileError,
    FileMissing,
    Grade,
    GraderError,
    OpenSandbox,
    PatchError,
    PatchRejected,
    Sandbox,
    SandboxError,
    Submission,
    Task,
    apply_patch,
    believed,
    fetching_line,
    fresh_path,
    kill_agent_processes,
    put_back,
    run_detached,
    sabotaged_archive,
)
from agentrl_swebench.official import Official
from agentrl_swebench.protect import control_of, deciding
from agentrl_swebench.rows import PROTOCOL, TESTS
from agentrl_swebench.settings import SweBenchSettings
from agentrl_swebench.tasks import start

TEST_ENV = {"TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
MAX_LOG_BYTES = 32 << 20
NOT_STARTED = (126, 127)
_PYTEST = re.compile(r"\b(pytest|py\.test)\b")
_PYTEST_ELSEWHERE = re.compile(r"\btox\b|\bnox\b|PYTEST_ADDOPTS")


class SweBenchGrader:
    """Implements :class:`agentrl.api.Grader`."""

    def __init__(self, settings: SweBenchSettings) -> None:
        self._settings = settings
        self._official = Official()

    def check(self, task: Task) -> str | None:
        """Refuses what the official package refuses, rows that count absent tests as passed, and scripts that need the network."""
        if task.protocol != PROTOCOL:
            return f"task {task.id} is of protocol {task.protocol!r}, this grader judges {PROTOCOL!r}"
        try:
            spec = self._official.ask("spec", row=task.metadata["row"])
        except GraderError as error:
            return str(error)
        if spec["eval_type"] != "pass_and_fail":
            return f"its eval_type {spec['eval_type']!r} takes tests that never ran for passed"
        line = fetching_line(f"{spec['setup']}\n{spec['tests']}")
        if line and self._settings.fetches == "refuse":
            return (
                f"its eval script needs the network when it grades, which sandboxes do not have: `{line}`; "
                "where the image holds what is fetched, SWE_GRADING_FETCHES=try"
            )
        return None

    async def grade(
        self, task: Task, submission: Submission, open_sandbox: OpenSandbox, *, timeout_sec: float
    ) -> Grade:
        """See :class:`agentrl.api.Grader`. An empty patch is 0 without a sandbox, a pass takes two."""
        if reason := await asyncio.to_thread(self.check, task):
            raise GraderError(reason)
        if not submission.patch.strip():
            return Grade(0.0, ExitStatus.EMPTY_PATCH)
        spec = await asyncio.to_thread(self._official.ask, "spec", row=task.metadata["row"])
        judge = partial(self._grade, task=task, spec=spec, patch=submission.patch, timeout_sec=timeout_sec)
        control = control_of(task.workdir, task.metadata["row"]["test_patch"], submission.patch)
        try:
            async with open_sandbox() as sandbox:
                grade = await judge(sandbox)
            return await believed(grade, control if self._settings.control_run else None, open_sandbox, judge)
        except PatchError as error:
            raise GraderError(f"task {task.id} cannot be graded: {error}") from error

    def gold(self, task: Task) -> Submission | None:
        """The row's ``patch``."""
        patch = task.metadata["row"].get("patch") or ""
        if not patch.strip():
            return None
        return Submission("", (patch if patch.endswith("\n") else patch + "\n").encode())

    async def _grade(
        self,
        sandbox: Sandbox,
        control: Control | None = None,
        *,
        task: Task,
        spec: Mapping[str, str],
        patch: bytes,
        timeout_sec: float,
    ) -> Grade:
        row = task.metadata["row"]
        base = await start(sandbox, task, timeout_sec=self._settings.pre_commands_timeout_sec)
        try:
            await apply_patch(sandbox, task.workdir, base, patch)
        except PatchRejected as error:
            return Grade(0.0, ExitStatus.PATCH_REJECTED, {"output": str(error)})
        decides = deciding(patch=row.get("patch") or "", test_patch=row["test_patch"], command=spec["tests"])
        restored = await put_back(sandbox, task.workdir, base, patch, decides)
        folder = fresh_path()
        await _bring_tests(sandbox, task, folder, control)
        result = await _run(sandbox, task, spec, folder, timeout_sec, controlled=control is not None)
        # Nothing that the tests left running may still write when the log is read.
        await kill_agent_processes(sandbox)
        log = await _read(sandbox, f"{folder}/tests.log")
        shown = {"exit_code": result.exit_code, "output": _tail(log)}
        if result.timed_out:
            return Grade(0.0, ExitStatus.TESTS_TIMED_OUT, shown, restored)
        if result.exit_code in NOT_STARTED:
            setup = _tail(await _read(sandbox, f"{folder}/setup.log"))
            raise GraderError(
                f"the tests of task {task.id} did not start, is it the right image? {setup}\n{_tail(log)}"
            )
        if log is None:
            return Grade(
                0.0, ExitStatus.UNSOLVED, {**shown, "remark": "the log of the tests is missing or too large"}, restored
            )
        junit = await _read(sandbox, f"{folder}/junit.xml") or b"" if _witnessed(task, spec) else None
        verdict = await self._report(row, log, result.exit_code, junit)
        return _judged(verdict, shown, restored)

    async def _report(self, row: Mapping[str, Any], log: bytes, exit_code: int, junit: bytes | None) -> dict[str, Any]:
        text, witness = (None if data is None else data.decode(errors="replace") for data in (log, junit))
        return await asyncio.to_thread(
            self._official.ask, "report", row=row, log=text, exit_code=exit_code, junit=witness
        )


async def _bring_tests(sandbox: Sandbox, task: Task, folder: str, control: Control | None) -> None:
    """See that the tests can be brought: the task would judge nothing without. For a ``control``, make them fail aside."""
    path = f"{folder}/test.patch"
    await sandbox.write_file(path, task.metadata["row"]["test_patch"].encode())
    await _apply(sandbox, task, "--check", path)
    if control is None:
        return
    await _apply(sandbox, task, path)
    await sandbox.write_file(f"{folder}/control.tar", await sabotaged_archive(sandbox, task.workdir, control))
    await _apply(sandbox, task, "-R", path)


async def _apply(sandbox: Sandbox, task: Task, *how: str) -> None:
    argv = ["git", "-c", "safe.directory=*", "apply", *how]
    result = await sandbox.exec(argv, cwd=task.workdir, timeout_sec=120)
    if not result.ok:
        said = result.stderr[-1000:].decode(errors="replace").strip()
        raise GraderError(f"the test_patch of task {task.id} does not apply to its start state: {said}")


async def _run(
    sandbox: Sandbox, task: Task, spec: Mapping[str, str], folder: str, timeout_sec: float, *, controlled: bool
) -> ExecResult:
    archive = f"{folder}/control.tar"
    failing = f"tar --no-same-owner -C {shlex.quote(task.workdir)} -xf {archive} || exit 126\nrm {archive}\n"
    script = (
        f"exec >{folder}/setup.log 2>&1\n{spec['setup']}\n{failing if controlled else ''}"
        f"exec >{folder}/tests.log 2>&1\n{spec['tests']}\nexit\n"
    )
    env = dict(TEST_ENV)
    if _witnessed(task, spec):
        env["PYTEST_ADDOPTS"] = f"--junitxml={folder}/junit.xml -o junit_family=xunit1"
    try:
        return await run_detached(sandbox, script, cwd=task.workdir, env=env, timeout_sec=timeout_sec)
    except SandboxError as error:
        if type(error) is not SandboxError:
            raise
        raise GraderError(f"the tests of task {task.id} left no verdict: {error}") from error


def _witnessed(task: Task, spec: Mapping[str, str]) -> bool:
    """Whether pytest can be asked for a report. Its own repository's tests would pass the wish on to inner runs."""
    if task.metadata["row"]["repo"] == "pytest-dev/pytest" or _PYTEST_ELSEWHERE.search(spec["setup"] + spec["tests"]):
        return False
    return bool(_PYTEST.search(spec["tests"]))


async def _read(sandbox: Sandbox, path: str) -> bytes | None:
    try:
        return await sandbox.read_file(path, max_bytes=MAX_LOG_BYTES)
    except FileMissing:
        return b"" if path.endswith("setup.log") else None
    except FileError:
        return None


def _judged(verdict: Mapping[str, Any], shown: Mapping[str, Any], restored: tuple[str, ...]) -> Grade:
    solved = verdict["resolved"] and not verdict["refuted"]
    counts = {
        name.lower(): {"passed": len(tests["success"]), "total": len(tests["success"]) + len(tests["failure"])}
        for name, tests in ((name, verdict[name]) for name in TESTS)
    }
    wanted = counts["fail_to_pass"]
    broken = verdict["PASS_TO_PASS"]["failure"]
    believed = not broken and not verdict["refuted"]
    details = {
        **shown,
        **counts,
        "partial": wanted["passed"] / wanted["total"] if believed else 0.0,
        "broken": broken[:100],
        "not_passed": [test for name in TESTS for test in verdict[name]["failure"]][:100],
        **{key: verdict[key] for key in ("refuted", "remark") if verdict[key]},
    }
    return Grade(float(solved), ExitStatus.SOLVED if solved else ExitStatus.UNSOLVED, details, restored)


def _tail(log: bytes | None) -> str:
    return (log or b"")[-4000:].decode(errors="replace").strip()
