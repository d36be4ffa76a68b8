"""Tasks as the data files of other training loops: one JSON object a line, with ``prompt``, ``label`` and ``metadata``.

``prompt`` is messages, never a string that some chat template made. ``metadata`` holds what the protocol's task format needs to
find the same task again (:func:`row_of`), which is proved for each row before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import orjson

from agentrl.errors import RowError
from agentrl.grader import Grader
from agentrl.rollout.data import SHOWN, read_task, rows
from agentrl.tasks import TaskFormat
from agentrl.types import Task

Format = Literal["slime", "miles"]
CONTROL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|begin_of_text|>",
    "[INST]",
    "<start_of_turn>",
    "<|user|>",
)
"""Markers that only a chat template writes."""


def row_of(metadata: Mapping[str, Any], *, prompt: object = None, label: object = None) -> dict[str, Any]:
    """The row that a task format reads, from a sample of another framework: the columns of ``metadata``, and ``metadata`` itself
    for formats that look for it there."""
    named = {name: value for name, value in (("prompt", prompt), ("label", label)) if value not in (None, "")}
    return {**metadata, **named, "metadata": dict(metadata)}


def convert(source: Path, task_format: TaskFormat, grader: Grader, *, to: Format) -> list[dict[str, Any]]:
    """The rows of a file, or the folders of a folder, as rows of ``to``.

    Raises: RowError that lists the bad ones (at most ten) with their row numbers.
    """
    converted, problems = [], []
    lines_by_id: dict[str, int] = {}
    for number, line in rows(source):
        try:
            task, row = _converted(line, task_format, grader, to)
        except RowError as error:
            problems.append(f"{source}:{number}: {error}")
            continue
        if (first := lines_by_id.setdefault(task.id, number)) != number:
            problems.append(f"{source}:{number}: id {task.id!r} is used in line {first} already")
        converted.append(row)
    if problems:
        more = f"\n... and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise RowError("\n".join(problems[:SHOWN]) + more)
    if not converted:
        raise RowError(f"{source}: no task at all")
    return converted


def write_rows(path: Path, converted: list[dict[str, Any]]) -> None:
    """All of them or none: readers never see half a file."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in converted))
    temporary.replace(path)


def _converted(line: bytes, task_format: TaskFormat, grader: Grader, to: Format) -> tuple[Task, dict[str, Any]]:
    task = read_task(line, task_format, grader)
    source: dict[str, Any] = orjson.loads(line)
    for problem in _prompt_problems(source.get("prompt")):
        raise RowError(problem)
    nested = source.get("metadata")
    metadata = dict(nested) if isinstance(nested, Mapping) else source
    # miles' agent functions see the metadata only, so the task's name has to be in there.
    named = {"instance_id": task.id} if to == "miles" or isinstance(nested, Mapping) else {}
    row: dict[str, Any] = {
        "prompt": [{"role": "user", "content": task.problem}],
        "label": task.id,
        "metadata": {**metadata, **named},
    }
    again = task_format.read(row_of(row["metadata"], prompt=row["prompt"], label=row["label"]))
    # What a format keeps for itself may hold the row as it was given, which it is not any more.
    if replace(again, metadata={}) != replace(task, metadata={}):
        raise RowError(
            f"task {task.id!r} is not the same after conversion: its row relies on columns besides `metadata`"
        )
    return task, row


def _prompt_problems(prompt: object) -> Iterator[str]:
    """What is wrong with the source's own prompt; most sources have none."""
    if prompt is None:
        return
    if isinstance(prompt, str):
        contents = [prompt]
    elif isinstance(prompt, list) and prompt and all(map(_is_message, prompt)):
        contents = [message["content"] for message in prompt]
    else:
        yield "prompt: expected text, or a list of messages with role and content"
        return
    for marker in CONTROL:
        if any(marker in content for content in contents):
            yield f"prompt: it holds {marker!r}, so some chat template made it already: give the plain text or messages"
            return


def _is_message(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)
