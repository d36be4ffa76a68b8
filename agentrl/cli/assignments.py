"""``NAME=VALUE`` words on a command line: settings for one command, above the environment. Some commands take the path of
a data file before them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from agentrl.errors import SettingsError

Assignments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME=VALUE]...", help="Settings for this command, above the environment.", show_default=False
    ),
]
"""The argument that every command takes which reads settings."""

DataAndAssignments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DATA] [NAME=VALUE]...",
        help="Data to use, then settings for this command, above the environment.",
        show_default=False,
    ),
]
"""The argument of commands that work on a data set."""


def read_data_assignments(words: Iterable[str] | None, variable: str) -> dict[str, str]:
    """Like :func:`read_assignments`; a first word that names something on disk is the value of ``variable``.

    A folder with a ``tasks.jsonl`` stands for that file.
    """
    data, *rest = [*(words or ()), ""]
    if data and (Path(data).exists() or "=" not in data):
        inside = Path(data, "tasks.jsonl")
        return {**read_assignments(filter(None, rest)), variable: str(inside) if inside.is_file() else data}
    return read_assignments(words)


def read_assignments(words: Iterable[str] | None) -> dict[str, str]:
    """Variable → value; an empty value unsets the variable. Raises: SettingsError."""
    overrides: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise SettingsError(f"{word!r} is no setting: write NAME=VALUE, such as SWE_SANDBOX=local")
        overrides[name] = value
    return overrides
