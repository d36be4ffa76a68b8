"""The example directories run as they are: the solution passes, doing nothing does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from privileges import needs_root

from agentrl.api import ExitStatus
from agentrl.rollout.validate import validate
from agentrl_harbor.carry import ARTIFACT, WORKDIR

EXAMPLES = Path(__file__).parents[3] / "examples" / "harbor" / "tasks"

NAMES = sorted(path.name for path in EXAMPLES.iterdir())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_root) if name == "install-command" else name for name in NAMES]
)
async def test_each_of_them_is_fit(name, example, protocol, grader, open_for):
    tasks = [example(name)]
    rows = validate(tasks, protocol, grader, lambda task: open_for(task)(), repeats=1, concurrency=1, timeout_sec=300)
    assert [row.reasons async for row in rows] == [()]


def test_there_are_several():
    assert len(NAMES) >= 4


async def test_a_clean_repository_is_carried_as_a_patch(example, work):
    task = example("three-functions")
    submission = await work(
        task, "sed -i 's/number > 1/number != 1/' text.py && touch ignored.pyc && git commit -qam mine"
    )
    assert b"number != 1" in submission.patch and not submission.artefacts


async def test_some_of_the_work_earns_some_of_the_reward(example, judge):
    grade = await judge(example("three-functions"), "sed -i 's/number > 1/number != 1/' text.py")
    assert (grade.reward, grade.exit_status) == (pytest.approx(1 / 3), ExitStatus.UNSOLVED)
    assert grade.details["rewards"] == {"reward": grade.reward, "initials": 0.0, "shortened": 0.0, "counted": 1.0}


@pytest.mark.slow
async def test_one_submission_graded_twenty_times_gives_twenty_equal_grades(example, work, grader, open_for):
    task = example("three-functions")
    submission = await work(task, "sed -i 's/number > 1/number != 1/' text.py")
    bound = asyncio.Semaphore(3)

    async def grade():
        async with bound:
            return await grader.grade(task, submission, open_for(task), timeout_sec=300)

    first, *others = await asyncio.gather(*(grade() for _ in range(20)))
    assert others == [first] * 19
    assert first.reward == pytest.approx(1 / 3)


async def test_a_folder_without_repository_is_carried_whole(example, work):
    submission = await work(
        example("count-errors"), "rm app.log; mkdir -p 'odd\n name'; ln -s nowhere 'odd\n name/link'"
    )
    assert set(submission.artefacts) == {WORKDIR} and submission.patch == b""


async def test_a_repository_with_changes_keeps_its_history(example, work, judge):
    task = example("recover-commit")
    assert set((await work(task, "true")).artefacts) == {WORKDIR}
    assert (await judge(task, "git reset --hard -q; git merge -q --ff-only 'HEAD@{2}'")).reward == 0.0


@needs_root
async def test_separate_verification_gets_artifacts_only(example, work, judge):
    task = example("install-command")
    script = "mkdir /opt/greet; echo world >/opt/greet/default-name; echo elsewhere >/srv/file"
    assert set((await work(task, script)).artefacts) == {f"{ARTIFACT}/opt/greet"}
    assert (await judge(task, script)).reward == 0.0


async def test_the_agent_sees_no_tests_and_no_solution(example, open_for, protocol):
    task = example("count-errors")
    async with open_for(task)() as machine:
        await protocol.prepare(machine, task)
        listed = await machine.exec("ls -d /tests /solution /logs /var/tmp/agentrl*", timeout_sec=60)
        assert listed.stdout == b""


async def test_the_environment_of_the_task_is_the_sandboxs(example, open_for):
    async with open_for(example("install-command"))() as machine:
        assert (await machine.exec("echo $GREETING", timeout_sec=60)).stdout == b"Hello\n"
