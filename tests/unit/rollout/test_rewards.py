"""What becomes the reward is one setting, applied in one place."""

from __future__ import annotations

import pytest
from repair import FIX, SUBMIT

from agentrl.api import ExitStatus, Grade
from agentrl.rollout.rewards import reward_of


@pytest.mark.parametrize(
    ("grade", "solved", "partial"),
    [
        (Grade(1.0, ExitStatus.SOLVED, {"partial": 1.0}), 1.0, 1.0),
        (Grade(0.0, ExitStatus.UNSOLVED, {"partial": 0.25}), 0.0, 0.25),
        (Grade(0.0, ExitStatus.UNSOLVED, {}), 0.0, 0.0),
        (Grade(0.0, ExitStatus.UNSOLVED, {"partial": "most"}), 0.0, 0.0),
        (Grade(0.0, ExitStatus.UNSOLVED, {"partial": float("nan")}), 0.0, 0.0),
        (Grade(0.0, ExitStatus.UNSOLVED, {"partial": 7}), 0.0, 0.0),
        (Grade(0.5, ExitStatus.UNSOLVED, {"partial": 0.25}), 0.5, 0.5),
    ],
)
def test_the_setting_chooses(grade, solved, partial):
    assert (reward_of(grade, "solved"), reward_of(grade, "partial")) == (solved, partial)


class Half:
    """A grader that counts."""

    def check(self, task): ...
    def gold(self, task): ...

    async def grade(self, task, submission, open_sandbox, *, timeout_sec):
        return Grade(0.0, ExitStatus.UNSOLVED, {"partial": 0.5})


@pytest.mark.parametrize(("setting", "reward"), [("", 0.0), ("partial", 0.5)])
async def test_a_rollout_is_rewarded_by_it_and_keeps_its_grade(bench, setting, reward):
    async with bench([FIX, SUBMIT], grader=Half(), AGENTRL_REWARD=setting) as b:
        rollout = await b.roll()
    assert (rollout.reward, rollout.grade.reward) == (reward, 0.0)
    assert {sample.reward for sample in rollout.samples} == {reward}
