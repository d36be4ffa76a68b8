"""Rows of a ``scaleswe`` file as tasks.

A row is ``{"prompt": str or messages, "label": str, "metadata": {...}}``. Metadata:

================== ===================================================================================================
``instance_id``    the task's id (else ``label``)
``image``          container image; absent: the backend's default
``workdir``        absolute path of the repository's top inside the sandbox
``problem_statement``  what the agent is asked (else the prompt's user messages)
``pre_commands``   shell lines (or one string) that make the start state from the image, run by ``bash -e`` in ``workdir``
``eval_cmd``       shell command run in ``workdir``: exit code 0 is solved
``f2p_script``     content of a Python file of tests; see :mod:`agentrl_scaleswe.verdicts`
``swepro``         a SWE-bench Pro harness: ``run_script``, ``parser_script`` (contents, or ``…_path`` of files on the host),
                   ``selected_test_files``, ``fail_to_pass``, ``pass_to_pass``, ``before_repo_set_cmd``
``restore``        paths (files or folders) put back from the task before the tests run
``gold_patch``     the task's own solution (also ``patch``)
``level``          a group in the metrics
``resources``      ``{"cpus", "memory_mb", "disk_mb", "pids"}``
================== ===================================================================================================

Exactly one of ``eval_cmd``, ``f2p_script`` and ``swepro``. What ``metadata.remote_env_info`` says (with ``image_url``)
counts where metadata itself is silent. Unknown fields are ignored.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.api import Resources, RowError, Task

PROTOCOL = "scaleswe"
WAYS = ("eval_cmd", "f2p_script", "swepro")
_QUOTED_OR_BREAK = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*")|\\n""", re.DOTALL)


class _Fields:
    """A JSON object of a row that explains what is wrong with it."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where, self.values = where, values

    def wrong(self, name: str, expected: str) -> RowError:
        return RowError(f"{self.where}.{name}: expected {expected}, got {_short(self.values.get(name))}")

    def text(self, name: str) -> str:
        """A string, empty when absent or null."""
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def required(self, name: str) -> str:
        if not self.text(name).strip():
            raise self.wrong(name, "a non-empty string")
        return self.text(name)

    def texts(self, name: str) -> list[str]:
        """A list of strings, or a string that spells one (JSON, or Python's way); empty when absent."""
        value = self.values.get(name)
        if value is None or value == "":
            return []
        if isinstance(value, str):
            value = _spelled_list(value)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of strings")
        return value

    def table(self, name: str) -> _Fields | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return _Fields(f"{self.where}.{name}", value)


def read_row(row: Mapping[str, Any]) -> Task:
    """One row as a task. Raises: RowError naming the field."""
    label = row.get("label") if isinstance(row.get("label"), str) else ""
    top = _Fields(f"row {_short(label or row.get('id'))}", row)
    metadata = top.table("metadata")
    if metadata is None:
        raise top.wrong("metadata", "an object")
    remote = metadata.table("remote_env_info")
    if remote is not None:
        given = {key: value for key, value in metadata.values.items() if value is not None}
        image = {"image": remote.values["image_url"]} if "image_url" in remote.values else {}
        metadata = _Fields(metadata.where, {**remote.values, **image, **given})
    task_id = metadata.text("instance_id") or label
    if not task_id:
        raise metadata.wrong("instance_id", "a non-empty string (or a label)")
    workdir = metadata.required("workdir")
    if not workdir.startswith("/"):
        raise metadata.wrong("workdir", "an absolute path")
    problem = metadata.text("problem_statement") or _prompt(top)
    if not problem.strip():
        raise metadata.wrong("problem_statement", "a non-empty string (or a prompt)")
    return Task(
        id=task_id,
        protocol=PROTOCOL,
        problem=problem,
        workdir=workdir,
        image=metadata.text("image") or None,
        resources=_resources(metadata),
        level=metadata.text("level"),
        metadata={
            "pre_commands": _pre_commands(metadata),
            "restore": metadata.texts("restore"),
            "gold_patch": metadata.text("gold_patch") or metadata.text("patch"),
            **_way(metadata),
        },
    )


def _prompt(top: _Fields) -> str:
    """A string, or what the user says in a list of messages."""
    prompt = top.values.get("prompt")
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    if not isinstance(prompt, list) or not all(isinstance(message, Mapping) for message in prompt):
        raise top.wrong("prompt", "a string or a list of {role, content}")
    return "\n\n".join(_said(top, message) for message in prompt if message.get("role") == "user")


def _said(top: _Fields, message: Mapping[str, Any]) -> str:
    match message.get("content"):
        case str(text):
            return text
        case list(parts):
            return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
        case _:
            raise top.wrong("prompt", "messages whose content is text")


def _pre_commands(metadata: _Fields) -> str:
    r"""One script. Some files spell line breaks as ``\n`` in a one-line string: outside quotes those are line breaks."""
    value = metadata.values.get("pre_commands")
    if isinstance(value, str):
        return value if "\n" in value else _QUOTED_OR_BREAK.sub(lambda m: m[1] or "\n", value)
    return "\n".join(line for line in metadata.texts("pre_commands") if line.strip())


def _way(metadata: _Fields) -> dict[str, Any]:
    """The one way of grading that the row names."""
    named = [way for way in WAYS if metadata.values.get(way) not in (None, "", {})]
    if len(named) != 1:
        raise RowError(f"{metadata.where}: expected exactly one of {', '.join(WAYS)}, got {', '.join(named) or 'none'}")
    if named != ["swepro"]:
        return {named[0]: metadata.required(named[0])}
    harness = metadata.table("swepro")
    return {"swepro": _harness(harness)} if harness else {}


def _harness(harness: _Fields) -> dict[str, Any]:
    fail_to_pass = harness.texts("fail_to_pass")
    if not fail_to_pass:
        raise harness.wrong("fail_to_pass", "a non-empty list of test names")
    return {
        "run_script": _content(harness, "run_script"),
        "parser_script": _content(harness, "parser_script"),
        "selected_test_files": harness.texts("selected_test_files") or harness.texts("selected_test_files_to_run"),
        "before_repo_set_cmd": harness.text("before_repo_set_cmd"),
        "fail_to_pass": fail_to_pass,
        "pass_to_pass": harness.texts("pass_to_pass"),
    }


def _content(harness: _Fields, name: str) -> str:
    path = harness.text(f"{name}_path")
    if not path:
        return harness.required(name)
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RowError(f"{harness.where}.{name}_path: {error}") from error


def _resources(metadata: _Fields) -> Resources:
    table = metadata.table("resources")
    if table is None:
        return Resources()
    for name, value in table.values.items():
        if name not in Resources.__slots__:
            raise RowError(f"{table.where}.{name}: unknown; known are {', '.join(Resources.__slots__)}")
        kinds = int | float if name == "cpus" else int
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or value <= 0):
            raise table.wrong(name, "a positive number")
    return Resources(**table.values)


def _spelled_list(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
