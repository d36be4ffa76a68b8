"""A run's folder: what is recorded is neither made nor reported again."""

from dataclasses import replace
from pathlib import Path

import pytest
from rollouts import two_turns

from agentrl.errors import TrainerError
from agentrl.outcomes import ExitStatus
from agentrl.rollout.journal import read_journal
from agentrl.rollout.lines import read_lines
from agentrl.rollout.run import open_run
from agentrl.rollout.verify import verify
from agentrl.settings import resolve
from agentrl.trainer import TrainSpec
from agentrl.types import Task

TASKS = [Task(f"t{i}", "p", "fix it", "/testbed", level="level-1") for i in range(4)]


class Silent:
    """A watcher that remembers which rollouts were made."""

    def __init__(self):
        self.made = []

    def phase(self, iteration, phase, detail=""): ...
    def rollouts(self, iteration, total): ...
    def iteration(self, metrics): ...

    def rollout(self, rollout):
        self.made.append(rollout.id)


async def solved(task, rollout_id, attempt):
    return replace(two_turns(str(rollout_id), iteration=rollout_id.iteration), task_id=task.id)


def open_at(
    directory: Path,
    watcher: Silent,
    *,
    first=0,
    run_one=solved,
    announce=lambda event, **facts: None,
    ahead=None,
    last=0,
):
    settings = resolve({"AGENTRL_GROUPS": "2", "AGENTRL_GROUP_SIZE": "2"}).settings
    spec = TrainSpec(directory, directory, directory, "float32", 0, first, last, 1, 100)
    return open_run(
        directory,
        spec=spec,
        engine=None,
        settings=settings,
        tasks=TASKS,
        run_one=run_one,
        watcher=watcher,
        announce=announce,
        ahead=ahead,
    )


async def test_an_iteration_is_journalled_reported_and_announced(tmp_path):
    events = []
    run = open_at(tmp_path, Silent(), announce=lambda event, **facts: events.append(event))
    groups = await run.groups(0)
    await run.report(0, {"loss": 0.5}, {"train": 1.0})
    run.close()
    assert sorted(r.id for r in read_journal(tmp_path / "journal.jsonl")) == sorted(
        r.id for g in groups for r in g.rollouts
    )
    (row,) = read_lines(tmp_path / "metrics.jsonl")
    assert (row["iteration"], row["reward"], row["loss"]) == (0, 1.0, 0.5)
    assert events == ["agentrl_rollout_finished"] * 4 + ["agentrl_iteration_finished"]


async def test_a_resumed_iteration_makes_only_what_is_missing(tmp_path):
    run = open_at(tmp_path, Silent())
    await run.groups(0)
    run.close()
    journal = tmp_path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]) + lines[3][:40])  # killed while the last rollout was written
    watcher = Silent()
    again = open_at(tmp_path, watcher)
    groups = await again.groups(0)
    again.close()
    assert len(watcher.made) == 1
    ids = [r.id for r in read_journal(journal)]
    assert sorted(ids) == sorted({r.id for g in groups for r in g.rollouts})


async def test_iterations_after_the_checkpoint_are_replayed_and_not_reported_twice(tmp_path):
    run = open_at(tmp_path, Silent())
    for iteration in range(3):
        await run.groups(iteration)
        await run.report(iteration, {}, {})
    run.close()
    watcher = Silent()
    again = open_at(tmp_path, watcher, first=1)
    for iteration in (1, 2, 3):
        await again.groups(iteration)
        await again.report(iteration, {}, {})
    again.close()
    assert {made.split("-")[0] for made in watcher.made} == {"i3"}
    assert [row["iteration"] for row in read_lines(tmp_path / "metrics.jsonl")] == [0, 1, 2, 3]


async def test_too_many_aborted_rollouts_stop_the_run_with_their_causes(tmp_path):
    async def lost(task, rollout_id, attempt):
        rollout = two_turns(str(rollout_id), reward=None, status=ExitStatus.IMAGE_UNAVAILABLE)
        return replace(rollout, message="no such image: x")

    run = open_at(tmp_path, Silent(), run_one=lost)
    with pytest.raises(TrainerError, match=r"4 of 4 rollouts were aborted(.|\n)*4 x image_unavailable: no such image"):
        await run.groups(0)
    run.close()


async def test_what_ended_a_run_is_tried_again_when_it_goes_on(tmp_path):
    async def lost_once(task, rollout_id, attempt):
        if rollout_id.iteration == 0 and rollout_id.member == 0:
            return await solved(task, rollout_id, attempt)
        rollout = two_turns(str(rollout_id), reward=None, status=ExitStatus.TASK_INVALID)
        return replace(rollout, iteration=rollout_id.iteration)

    run = open_at(tmp_path, Silent(), run_one=lost_once)
    await run.groups(0)
    await run.report(0, {}, {})
    with pytest.raises(TrainerError):
        await run.groups(1)
    run.close()
    watcher = Silent()
    again = open_at(tmp_path, watcher)
    first, second = await again.groups(0), await again.groups(1)
    again.close()
    # The iteration that was reported stays as it was; all of the one that failed was aborted, and is made again.
    assert sorted(r.id for g in first for r in g.rollouts if r.reward is None) == ["i0-g0-r1", "i0-g1-r1"]
    assert sorted(watcher.made) == ["i1-g0-r0", "i1-g0-r1", "i1-g1-r0", "i1-g1-r1"]
    assert all(r.reward == 1.0 for g in second for r in g.rollouts)
    assert verify(read_journal(tmp_path / "journal.jsonl")).aborted == 6


async def test_both_runs_of_one_seed_ask_for_the_same_tasks(tmp_path):
    runs = [open_at(tmp_path / name, Silent()) for name in ("a", "b")]
    asked = [[g.task_id for i in range(3) for g in await run.groups(i)] for run in runs]
    for run in runs:
        run.close()
    assert asked[0] == asked[1]


class Told:
    """What was to be started ahead, last."""

    def want(self, tasks):
        self.tasks = [task.id for task in tasks]

    def counted(self):
        return {"warm": {"hits": 3, "misses": 1}}


async def test_after_this_iterations_tasks_come_the_next_ones(tmp_path):
    ahead = Told()
    run = open_at(tmp_path, Silent(), ahead=ahead, last=2)
    await run.groups(0)
    await run.report(0, {}, {})
    announced = ahead.tasks
    second = await run.groups(1)
    assert announced == [group.task_id for group in second for _ in group.rollouts]
    assert ahead.tasks == [], "after the last iteration comes nothing"
    run.close()
    (row,) = read_lines(tmp_path / "metrics.jsonl")
    assert row["warm"] == {"hits": 3, "misses": 1}
