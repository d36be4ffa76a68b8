"""Rows of SWE-bench as tasks.

A row has the columns that the benchmark publishes: ``instance_id``, ``repo``, ``base_commit``, ``patch``, ``test_patch``,
``problem_statement``, ``version``, ``FAIL_TO_PASS`` and ``PASS_TO_PASS`` (lists, or JSON texts of lists); rows made for
``swebench`` 5 also ``image``, ``log_parser``, ``eval_type`` and ``eval_script``. Columns of our own, all optional:

================ =====================================================================================================
``workdir``      the repository's top inside the sandbox; ``/testbed``
``pre_commands`` shell lines (a string or a list) that make the start state where the image does not hold it, run by
                 ``bash -e`` in ``workdir``
``level``        a group in the metrics
================ =====================================================================================================

The whole row goes to the official package; other columns are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentrl.api import RowError, Task

PROTOCOL = "swebench"
TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
_TEXTS = ("instance_id", "repo", "base_commit", "test_patch", "problem_statement")


def read_row(row: Mapping[str, Any], *, image: str = "") -> Task:
    """One row as a task; ``image`` is used instead of the row's. Raises: RowError naming the column."""
    for name in _TEXTS:
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise _wrong(row, name, "a non-empty string")
    tests = {name: _names(row, name) for name in TESTS}
    if not tests["FAIL_TO_PASS"]:
        raise _wrong(row, "FAIL_TO_PASS", "at least one test")
    workdir = row.get("workdir") or "/testbed"
    if not isinstance(workdir, str) or not workdir.startswith("/"):
        raise _wrong(row, "workdir", "an absolute path")
    return Task(
        id=row["instance_id"],
        protocol=PROTOCOL,
        problem=row["problem_statement"],
        workdir=workdir,
        image=_image(row, image),
        level=str(row.get("level") or ""),
        metadata={"row": {**row, **tests}, "pre_commands": _commands(row)},
    )


def _image(row: Mapping[str, Any], wanted: str) -> str:
    """By setting, by row, or by the benchmark's own naming."""
    name = row["instance_id"].lower().replace("__", "_1776_")
    if wanted:
        return wanted.replace("{instance_id}", name)
    return str(row.get("image") or f"swebench/sweb.eval.x86_64.{name}:latest")


def _names(row: Mapping[str, Any], column: str) -> list[str]:
    value = row.get(column)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise _wrong(row, column, "a list of test names") from None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(row, column, "a list of test names")
    return value


def _commands(row: Mapping[str, Any]) -> str:
    value = row.get("pre_commands") or ""
    if isinstance(value, list):
        value = "\n".join(map(str, value))
    if not isinstance(value, str):
        raise _wrong(row, "pre_commands", "shell lines")
    return value


def _wrong(row: Mapping[str, Any], column: str, expected: str) -> RowError:
    shown = repr(row.get(column))
    return RowError(f"row {row.get('instance_id')!r}: {column}: expected {expected}, got {shown[:80]}")
