"""Data files: JSON lines, read by a task format, every bad row reported before anything is paid for."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import orjson

from agentrl.errors import RowError
from agentrl.grader import Grader
from agentrl.tasks import TaskFormat
from agentrl.types import Task

SHOWN = 10


def load_tasks(path: Path, task_format: TaskFormat, grader: Grader, *, levels: Collection[str] = ()) -> list[Task]:
    """All tasks of a JSONL file, in order; ``levels`` keeps only those levels.

    Raises: RowError that lists the bad rows (at most ten) with their line numbers: not JSON, not a task, a task that the
    grader cannot judge, an id used twice; or that nothing is left.
    """
    tasks: list[Task] = []
    problems: list[str] = []
    lines_by_id: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            task = _read(line, task_format, grader)
        except RowError as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        if (first := lines_by_id.setdefault(task.id, number)) != number:
            problems.append(f"{path}:{number}: id {task.id!r} is used in line {first} already")
        tasks.append(task)
    if problems:
        more = f"\n... and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise RowError("\n".join(problems[:SHOWN]) + more)
    chosen = [task for task in tasks if not levels or task.level in levels]
    if not chosen:
        found = ", ".join(sorted({task.level for task in tasks})) or "no task at all"
        raise RowError(f"{path}: no task of the levels {', '.join(levels) or '(any)'}; the file has: {found}")
    return chosen


def _read(line: bytes, task_format: TaskFormat, grader: Grader) -> Task:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RowError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise RowError(f"expected an object, found {type(row).__name__}")
    task = task_format.read(row)
    if reason := grader.check(task):
        raise RowError(f"task {task.id!r} cannot be graded: {reason}")
    return task
