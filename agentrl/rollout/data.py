"""Data files: JSON lines, read by a task format, every bad row reported before anything is paid for.

Data can also be a folder of task folders: each becomes the row ``{"path": "<absolute path>"}``. Beside the data may lie a
quarantine: a JSON file of tasks that ``agentrl validate`` found unfit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import orjson

from agentrl.errors import RowError, UsageError
from agentrl.grader import Grader
from agentrl.tasks import TaskFormat
from agentrl.types import Task

SHOWN = 10


def load_tasks(path: Path, task_format: TaskFormat, grader: Grader, *, levels: Collection[str] = ()) -> list[Task]:
    """All tasks of a JSONL file, or of a folder of task folders, in order; ``levels`` keeps only those levels.

    Raises: RowError that lists the bad rows (at most ten) with their line numbers: not JSON, not a task, a task that the
    grader cannot judge, an id used twice; or that nothing is left.
    """
    tasks: list[Task] = []
    problems: list[str] = []
    lines_by_id: dict[str, int] = {}
    for number, line in rows(path):
        try:
            task = read_task(line, task_format, grader)
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


def quarantine_path(data: Path, chosen: Path | None) -> Path:
    """Where the quarantine of ``data`` lies: ``chosen``, or beside it."""
    return chosen or data.with_name(f"{data.name}.quarantine.json")


def read_quarantine(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Task id → why it is unfit; nothing when there is no file, or an empty one. Raises: UsageError."""
    try:
        content = path.read_bytes().strip()
        listed = orjson.loads(content) if content else {}
        return {str(task_id): tuple(map(str, reasons)) for task_id, reasons in listed.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"{path} is no quarantine ({error}): make it anew with `agentrl validate`") from error


def write_quarantine(path: Path, unfit: Mapping[str, tuple[str, ...]]) -> None:
    """Replace the file; without unfit tasks there is none. What is no file (``/dev/null``) is left alone."""
    if path.exists() and not path.is_file():
        return
    if not unfit:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(orjson.dumps(unfit, option=orjson.OPT_INDENT_2) + b"\n")
    temporary.replace(path)


def rows(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number, line) from 1, blank lines left out; a folder's task folders as lines."""
    if path.is_dir():
        folders = sorted(p for p in path.resolve().iterdir() if p.is_dir() and not p.name.startswith("."))
        lines = [orjson.dumps({"path": str(folder)}) for folder in folders]
    else:
        lines = path.read_bytes().splitlines()
    yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def read_task(line: bytes, task_format: TaskFormat, grader: Grader) -> Task:
    """One line as a task that the grader can judge. Raises: RowError."""
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
