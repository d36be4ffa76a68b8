"""Unfit tasks are found before they are used."""

from __future__ import annotations

import json

from agentrl.rollout.validate import quarantine, validate


async def check(tasks, protocol, grader, open_sandbox, **options):
    return {row.task_id: row async for row in validate(tasks, protocol, grader, open_sandbox, **options)}


async def test_a_sound_task_is_fit(task, protocol, grader, open_sandbox):
    rows = await check([task()], protocol, grader, open_sandbox, repeats=2)
    assert rows["calc-1"].fit and rows["calc-1"].gold_rewards == (1.0, 1.0) and rows["calc-1"].idle_reward == 0.0
    assert json.dumps([row.to_json() for row in rows.values()])


async def test_unfit_tasks_are_quarantined_with_their_reasons(task, protocol, grader, open_sandbox):
    flaky = 'python3 tests/check.py && test ! -e "$HOME/seen"'
    tasks = [
        task(instance_id="trivial", eval_cmd="true"),
        task(instance_id="impossible", eval_cmd="false"),
        task(instance_id="no gold", gold_patch=None),
        task(instance_id="broken", pre_commands="exit 1"),
        task(instance_id="sound", eval_cmd=flaky),
    ]
    rows = await check(tasks, protocol, grader, open_sandbox, repeats=1, concurrency=2)
    reasons = quarantine(rows.values())
    assert set(reasons) == {"trivial", "impossible", "no gold", "broken"}
    assert reasons["trivial"] == ("the idle patch passes: the tests do not need the solution",)
    assert reasons["impossible"][0].startswith("the gold patch fails 1 of 1 times")
    assert reasons["no gold"] == ("the task carries no gold patch",)
    assert "GraderError" in reasons["broken"][0] and "pre_commands" in reasons["broken"][0]


async def test_a_task_of_another_protocol_costs_nothing(task, protocol, grader, open_sandbox):
    from dataclasses import replace

    rows = await check([replace(task(), protocol="harbor")], protocol, grader, open_sandbox)
    assert "harbor" in rows["calc-1"].reasons[0] and open_sandbox.opened == 0
