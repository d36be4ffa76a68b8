"""One table decides; nothing is missing from it and nothing contradicts itself."""

from __future__ import annotations

from typing import get_args

import pytest

from agentrl.outcomes import RULES, TRUNCATIONS, Cause, ExitStatus, Outcome, markdown_table


def test_every_exit_status_has_a_rule_and_every_cause_is_used():
    assert set(RULES) == set(ExitStatus)
    assert {rule.cause for rule in RULES.values()} == set(get_args(Cause))
    assert all(RULES[status].outcome is Outcome.TRUNCATED for status in TRUNCATIONS.values())


@pytest.mark.parametrize("status", ExitStatus)
def test_what_the_policy_did_is_graded_once_and_what_the_world_did_has_no_reward(status):
    rule = RULES[status]
    assert (rule.outcome is Outcome.GRADED) == (rule.cause == "policy")
    assert rule.has_reward == (rule.outcome is not Outcome.ABORTED)
    assert not (rule.retried and rule.has_reward)
    assert rule.meaning


def test_the_table_names_every_status():
    rows = markdown_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [status.value for status in ExitStatus]
