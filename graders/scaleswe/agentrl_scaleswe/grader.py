"""The judging half of the protocol: a patch in, a verdict out."""

from __future__ import annotations

from dataclasses import replace

from agentrl.api import (
    ExitStatus,
    Grade,
    GraderError,
    OpenSandbox,
    PatchError,
    PatchRejected,
    Sandbox,
    Submission,
    Task,
    apply_patch,
)
from agentrl_scaleswe.control import Control, control_of
from agentrl_scaleswe.protect import put_back
from agentrl_scaleswe.rows import PROTOCOL, WAYS
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.start import reach_start
from agentrl_scaleswe.verdicts import judge


class ScaleSweGrader:
    """Implements :class:`agentrl.api.Grader`."""

    def __init__(self, settings: ScaleSweSettings) -> None:
        self._settings = settings
        self._control = settings.control_run

    def check(self, task: Task) -> str | None:
        """Refuses tasks of other protocols and tasks without exactly one way of grading."""
        if task.protocol != PROTOCOL:
            return f"task {task.id} is of protocol {task.protocol!r}, this grader judges {PROTOCOL!r}"
        if sum(way in task.metadata for way in WAYS) != 1:
            return f"task {task.id} needs exactly one of {', '.join(WAYS)}"
        return None

    async def grade(
        self, task: Task, submission: Submission, open_sandbox: OpenSandbox, *, timeout_sec: float
    ) -> Grade:
        """See :class:`agentrl.api.Grader`. An empty patch is 0 without a sandbox, a pass takes two (see :mod:`.control`)."""
        if reason := self.check(task):
            raise GraderError(reason)
        if not submission.patch.strip():
            return Grade(0.0, ExitStatus.EMPTY_PATCH)
        try:
            async with open_sandbox() as sandbox:
                grade = await self._grade(sandbox, task, submission.patch, timeout_sec)
            if grade.exit_status is ExitStatus.SOLVED and self._control:
                return await self._believed(grade, task, submission.patch, open_sandbox, timeout_sec)
        except PatchError as error:
            raise GraderError(f"task {task.id} cannot be graded: {error}") from error
        return grade

    def gold(self, task: Task) -> Submission | None:
        """The row's ``gold_patch``. A last line without its end is completed: files of rows often lose it."""
        patch = task.metadata.get("gold_patch", "")
        if not patch.strip():
            return None
        return Submission("", (patch if patch.endswith("\n") else patch + "\n").encode())

    async def _believed(
        self, grade: Grade, task: Task, patch: bytes, open_sandbox: OpenSandbox, timeout_sec: float
    ) -> Grade:
        """``grade``, unless the tests pass also when they are made to fail."""
        control = control_of(task, patch)
        if control is None:
            return grade
        async with open_sandbox() as sandbox:
            try:
                again = await self._grade(sandbox, task, patch, timeout_sec, control)
            except GraderError:
                return grade
        if again.exit_status is not ExitStatus.SOLVED:
            return grade
        details = {name: value for name, value in grade.details.items() if name != "partial"}
        said = "the tests pass also when each of them is made to fail"
        return Grade(0.0, ExitStatus.UNSOLVED, {**details, "control": said}, grade.restored)

    async def _grade(
        self, sandbox: Sandbox, task: Task, patch: bytes, timeout_sec: float, control: Control | None = None
    ) -> Grade:
        base = await reach_start(sandbox, task, timeout_sec=self._settings.pre_commands_timeout_sec)
        try:
            await apply_patch(sandbox, task.workdir, base, patch)
        except PatchRejected as error:
            return Grade(0.0, ExitStatus.PATCH_REJECTED, {"output": str(error)})
        restored = await put_back(sandbox, task, base, patch)
        return replace(await judge(sandbox, task, timeout_sec=timeout_sec, control=control), restored=restored)
