"""The judging half of the protocol: the agent's files in, the reward that the task's tests write out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from agentrl.api import (
    Control,
    ExecResult,
    ExitStatus,
    Grade,
    GraderError,
    OpenSandbox,
    PatchError,
    PatchRejected,
    Sandbox,
    Submission,
    Task,
    believed,
    fetching_line,
    run_detached,
)
from agentrl_harbor import carry
from agentrl_harbor.control import control_of
from agentrl_harbor.dockerfile import pack
from agentrl_harbor.folder import PROTOCOL
from agentrl_harbor.settings import HarborSettings
from agentrl_harbor.verifier import NoReward, chosen, read_rewards, run_tests

SOLUTION = "solution"
"""An artefact of this name is no work but a recipe: the folder with solve.sh. Nothing that is collected is called so."""
KILLED = 128


class HarborGrader:
    """Implements :class:`agentrl.api.Grader`."""

    def __init__(self, settings: HarborSettings) -> None:
        self._settings = settings

    def check(self, task: Task) -> str | None:
        """Refuses tasks of other protocols, without tests, or whose test.sh needs the network."""
        if task.protocol != PROTOCOL:
            return f"task {task.id} is of protocol {task.protocol!r}, this grader judges {PROTOCOL!r}"
        path = Path(task.metadata["folder"], "tests", "test.sh")
        try:
            line = fetching_line(path.read_text(errors="replace"))
        except OSError as error:
            return f"tests/test.sh cannot be read: {error}"
        if line and self._settings.fetches == "refuse":
            return (
                f"tests/test.sh needs the network, which sandboxes do not have: `{line}`; "
                "where the image holds what is fetched, SWE_GRADING_FETCHES=try"
            )
        return None

    async def grade(
        self, task: Task, submission: Submission, open_sandbox: OpenSandbox, *, timeout_sec: float
    ) -> Grade:
        """See :class:`agentrl.api.Grader`. Nothing carried at all is 0 without a sandbox; what earns takes two."""
        if reason := self.check(task):
            raise GraderError(reason)
        if SOLUTION in submission.artefacts:
            submission = await self._solve(task, submission.artefacts[SOLUTION], open_sandbox)
        if not submission.patch.strip() and not submission.artefacts:
            return Grade(0.0, ExitStatus.EMPTY_PATCH)
        judge = partial(self._judge, task=task, submission=submission, timeout_sec=timeout_sec)
        async with open_sandbox() as sandbox:
            grade = await judge(sandbox)
        control = control_of(task) if self._settings.control_run else None
        return await believed(grade, control, open_sandbox, judge)

    def gold(self, task: Task) -> Submission | None:
        """The folder of the task's solution: what it does is found out in a sandbox of its own, like an agent's work."""
        folder = Path(task.metadata["folder"], "solution")
        return Submission("", b"", {SOLUTION: pack(folder)}) if (folder / "solve.sh").is_file() else None

    async def _judge(
        self,
        sandbox: Sandbox,
        control: Control | None = None,
        *,
        task: Task,
        submission: Submission,
        timeout_sec: float,
    ) -> Grade:
        await carry.start(sandbox, task, prune=False)
        try:
            await carry.restore(sandbox, task, submission)
        except PatchRejected as error:
            return Grade(0.0, ExitStatus.PATCH_REJECTED, {"output": str(error)})
        limit = min(timeout_sec, task.metadata["verifier_sec"])
        result = await run_tests(sandbox, task, timeout_sec=limit, control=control)
        shown = {"exit_code": result.exit_code, "output": _tail(result)}
        if result.timed_out:
            return Grade(0.0, ExitStatus.TESTS_TIMED_OUT, shown)
        try:
            rewards = await read_rewards(sandbox, task)
        except NoReward:
            # A script that fails may write none; one that was killed proves nothing.
            if control is None or result.exit_code > KILLED:
                raise
            return Grade(0.0, ExitStatus.UNSOLVED, shown)
        reward = chosen(task, rewards)
        status = ExitStatus.SOLVED if reward == 1.0 else ExitStatus.UNSOLVED
        return Grade(reward, status, {**shown, "rewards": rewards, "partial": reward})

    async def _solve(self, task: Task, solution: bytes, open_sandbox: OpenSandbox) -> Submission:
        """What solve.sh leaves behind. Raises: GraderError, SandboxError."""
        async with open_sandbox() as sandbox:
            prepared = await carry.start(sandbox, task, prune=self._settings.prune)
            await carry.unpack(sandbox, f"/{SOLUTION}", solution)
            env = {**task.env, **task.metadata["solution_env"]}
            command, limit = f"bash /{SOLUTION}/solve.sh", task.metadata["solution_sec"]
            result = await run_detached(sandbox, command, cwd=task.workdir, env=env, timeout_sec=limit)
            if not result.ok:
                raise GraderError(f"solve.sh of task {task.id} ended with {result.exit_code}: {_tail(result)}")
            try:
                return await carry.collect(sandbox, task, prepared.base_commit, self._settings)
            except PatchError as error:
                raise GraderError(f"task {task.id}: its solution cannot be carried over: {error}") from error


def _tail(result: ExecResult) -> str:
    return (result.stdout + result.stderr)[-4000:].decode(errors="replace").strip()
