"""``NAME=VALUE`` words on a command line: settings for one command, above the environment."""

from __future__ import annotations

from collections.abc import Iterable
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


def read_assignments(words: Iterable[str] | None) -> dict[str, str]:
    """Variable → value; an empty value unsets the variable. Raises: SettingsError."""
    overrides: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise SettingsError(f"{word!r} is no setting: write NAME=VALUE, such as SWE_SANDBOX=local")
        overrides[name] = value
    return overrides
