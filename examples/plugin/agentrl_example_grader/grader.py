"""The verdict: the submitted file, put into a fresh sandbox, has the number of lines that the task asks for."""

from __future__ import annotations

from agentrl.api import ExitStatus, Grade, GraderError, OpenSandbox, Submission, Task
from agentrl_example_grader.task_format import set_up


class LineCountGrader:
    """Implements :class:`agentrl.api.Grader`."""

    def check(self, task: Task) -> str | None:
        """A reason why this task can never be graded."""
        return None if task.metadata["lines"] >= 0 else "expect.lines is negative"

    async def grade(
        self, task: Task, submission: Submission, open_sandbox: OpenSandbox, *, timeout_sec: float
    ) -> Grade:
        """Count. Raises: GraderError, SandboxError when nothing could be counted."""
        path = task.metadata["path"]
        if path not in submission.artefacts:
            return Grade(0.0, ExitStatus.EMPTY_PATCH)
        async with open_sandbox() as sandbox:
            await set_up(sandbox, task)
            target = f"{task.workdir}/{path}"
            await sandbox.write_file(target, submission.artefacts[path])
            result = await sandbox.exec(["wc", "-l", target], timeout_sec=timeout_sec)
        if result.timed_out:
            return Grade(0.0, ExitStatus.TESTS_TIMED_OUT)
        count = result.stdout.split()[:1]
        if not result.ok or not count or not count[0].isdigit():
            raise GraderError(f"wc answered {result.exit_code}: {result.stdout!r} {result.stderr!r}")
        solved = int(count[0]) == task.metadata["lines"]
        return Grade(float(solved), ExitStatus.SOLVED if solved else ExitStatus.UNSOLVED, {"lines": int(count[0])})

    def gold(self, task: Task) -> Submission | None:
        """The task's own solution, if its row has one."""
        solution = task.metadata["solution"]
        if solution is None:
            return None
        return Submission(base_commit="", patch=b"", artefacts={task.metadata["path"]: solution.encode()})
