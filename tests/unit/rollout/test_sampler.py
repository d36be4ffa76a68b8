"""Which tasks an iteration works on."""

from collections import Counter

import pytest

from agentrl.rollout.sampler import tasks_of
from agentrl.types import Task

TASKS = [Task(f"t{i}", "p", "fix it", "/testbed") for i in range(5)]


def names(iteration, count=3, seed=0):
    return [task.id for task in tasks_of(TASKS, iteration=iteration, count=count, seed=seed)]


def test_an_iteration_is_a_function_of_seed_and_number():
    assert names(7) == names(7)
    assert [names(i) for i in range(5)] != [names(i, seed=1) for i in range(5)]


def test_every_task_is_seen_equally_often():
    counts = Counter(name for i in range(5) for name in names(i))
    assert set(counts.values()) == {3}


def test_one_epoch_repeats_nothing():
    assert len(set(names(0, count=5))) == 5


def test_an_iteration_may_be_larger_than_the_data():
    assert Counter(names(0, count=10)) == {task.id: 2 for task in TASKS}


def test_no_tasks_is_refused():
    with pytest.raises(ValueError, match="no tasks"):
        tasks_of([], iteration=0, count=1, seed=0)
