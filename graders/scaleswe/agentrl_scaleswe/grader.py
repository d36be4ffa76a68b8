"""The judging half of the protocol: a patch in, a verdict out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agentrl.api import (
    Control,
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
    believed,
    put_back,
)
from agentrl_scaleswe.control import control_of
from agentrl_scaleswe.protect import decides
from agentrl_scaleswe.rows import PROTOCOL, WAYS
from agentrl_scaleswe.settings import ScaleSweSettings
from agentrl_scaleswe.start import start
from agentrl_scaleswe.verdicts import judge


class ScaleSweGrader:
    """Implements :class:`agentrl.api.Grader`."""

    def __init__(self, settings: ScaleSweSettings) -> None:
        self._settings = settings

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
        """See :class:`agentrl.api.Grader`. An empty patch is 0 without a sandbox, a pass takes two (:mod:`.control`)."""
        if reason := self.check(task):
            raise GraderError(reason)
        if not submission.patch.strip():
            return Grade(0.0, ExitStatus.EMPTY_PATCH)
        judge = partial(self._grade, task=task, patch=submission.patch, timeout_sec=timeout_sec)
        control = control_of(task, submission.patch) if self._settings.control_run else None
        try:
            async with open_sandbox() as sandbox:
                grade = await judge(sandbox)
            return await believed(grade, control, open_sandbox, judge)
        except PatchError as error:
            raise GraderError(f"task {task.id} cannot be graded: {error}") from error

    def gold(self, task: Task) -> Submission | None:
        """The row's ``gold_patch``. A last line without its end is completed: files of rows often lose it."""
        patch = task.metadata.get("gold_patch", "")
        if not patch.strip():
            return None
        return Submission("", (patch if patch.endswith("\n") else patch + "\n").encode())

    async def _grade(
        self, sandbox: Sandbox, control: Control | None = None, *, task: Task, patch: bytes, timeout_sec: float
    ) -> Grade:
        base = await start(sandbox, task, timeout_sec=self._settings.pre_commands_timeout_sec)
        try:
            await apply_patch(sandbox, task.workdir, base, patch)
        except PatchRejected as error:
            return Grade(0.0, ExitStatus.PATCH_REJECTED, {"output": str(error)})
        restored = await put_back(sandbox, task.workdir, base, patch, partial(decides, task=task))
        return replace(await judge(sandbox, task, timeout_sec=timeout_sec, control=control), restored=restored)
