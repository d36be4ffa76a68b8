"""Many rollouts at once: bounded, fair to groups, none taken down by another.

Groups start in order and share one bound, so that early groups finish early. A rollout that the journal already holds is
not made again. An attempt that failed for a reason worth another try is tried once more; only the last attempt is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from agentrl.outcomes import RULES
from agentrl.rollout.one import RolloutId
from agentrl.types import Group, Rollout, Task

ATTEMPTS = 2

RunOne = Callable[[Task, RolloutId, int], Awaitable[Rollout]]
"""(task, id, attempt) → the finished rollout."""


async def run_groups(
    tasks: Sequence[Task],
    *,
    iteration: int,
    group_size: int,
    concurrency: int,
    run_one: RunOne,
    done: Mapping[str, Rollout],
    finished: Callable[[Rollout], None],
    waiting: Callable[[Iterable[Task]], None] = lambda tasks: None,
) -> list[Group]:
    """Roll out ``group_size`` attempts of each task. ``done``: rollouts that exist already, by id; ``finished`` is called
    for each new one as it ends; ``waiting`` as one starts, with the tasks of those that have not, in order. When cancelled,
    all running rollouts are cancelled and awaited."""
    bound = asyncio.Semaphore(concurrency)
    ids = [[RolloutId(iteration, g, member) for member in range(group_size)] for g in range(len(tasks))]
    queue = deque(task for task, group in zip(tasks, ids, strict=True) for name in group if str(name) not in done)

    async def one(task: Task, rollout_id: RolloutId) -> Rollout:
        if str(rollout_id) in done:
            return done[str(rollout_id)]
        async with bound:
            queue.popleft()  # the bound is fair: it is this one's turn
            waiting(queue)
            rollout = await with_retries(task, rollout_id, run_one)
        finished(rollout)
        return rollout

    async with asyncio.TaskGroup() as running:
        jobs = [
            [running.create_task(one(task, rollout_id)) for rollout_id in group]
            for task, group in zip(tasks, ids, strict=True)
        ]
    return [
        Group(group[0].group_id, task.id, tuple(job.result() for job in row))
        for task, group, row in zip(tasks, ids, jobs, strict=True)
    ]


async def with_retries(task: Task, rollout_id: RolloutId, run_one: RunOne) -> Rollout:
    """The last attempt at a rollout."""
    for attempt in range(1, ATTEMPTS):
        rollout = await run_one(task, rollout_id, attempt)
        if not RULES[rollout.exit_status].retried:
            return rollout
    return await run_one(task, rollout_id, ATTEMPTS)
