"""Which tasks an iteration works on: a function of seed and iteration alone, so that a resumed run asks the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from agentrl.types import Task


def tasks_of(tasks: Sequence[Task], *, iteration: int, count: int, seed: int) -> list[Task]:
    """``count`` tasks for this iteration. Tasks are walked in epochs, each epoch in an order of its own, so that every
    task is seen equally often; an iteration larger than the data repeats tasks. Raises: ValueError without tasks."""
    if not tasks:
        raise ValueError("no tasks to choose from")
    first = iteration * count
    walk = _walk(tasks, seed, first // len(tasks))
    skip = first % len(tasks)
    return [next(walk) for _ in range(skip + count)][skip:]


def _walk(tasks: Sequence[Task], seed: int, epoch: int) -> Iterator[Task]:
    while True:
        order = list(tasks)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        yield from order
        epoch += 1
