"""``agentrl settings``: every setting there is, of core and of all plugins; also the generated table of the README."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.errors import UsageError
from agentrl.plugins import load_plugins
from agentrl.registry import Registry
from agentrl.settings import PluginSettings, Settings, Variable, forwarded, resolve, variables

BEGIN, END = "<!-- settings -->", "<!-- /settings -->"
"""The README's table stands between these lines."""


def settings(
    assignments: Assignments = None,
    markdown: Annotated[bool, typer.Option(help="Print the README's block (of this distribution only).")] = False,
    update: Annotated[Path | None, typer.Option(help="Renew that block in this file.")] = None,
    forward: Annotated[bool, typer.Option(help="Print the names that remote workers need, one a line.")] = False,
) -> None:
    """List every setting, also as the README's table."""
    resolved = resolve(overrides=read_assignments(assignments))
    registry = load_plugins(resolved).registry
    if update:
        renew(update, settings_markdown(registry))
    elif markdown:
        typer.echo(settings_markdown(registry))
    elif forward:
        typer.echo("\n".join(forwarded(registry.settings_classes())))
    else:
        Console().print(_table(registry))


def settings_markdown(registry: Registry) -> str:
    """The README's block, markers included: the settings of core and of the plugins that come with it."""
    lines = [BEGIN, "", "| Variable | Default | Meaning |", "|---|---|---|"]
    seen: set[str] = set()
    for owner, cls in _classes(registry, distribution="agentrl"):
        rows = [v for v in variables(cls) if v.name not in seen]
        seen |= {v.name for v in rows}
        if rows and owner != "core":
            lines.append(f"| **{owner}** | | |")
        lines += [f"| `{v.name}` | {_code(v.default)} | {_meaning(v)} |" for v in rows]
    return "\n".join([*lines, "", END])


def renew(path: Path, block: str) -> None:
    """Put ``block`` where the file has its markers. Raises: UsageError when it has not exactly one pair."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UsageError(f"{path} must have one line {BEGIN} and, after it, one line {END}")
    before, _, rest = text.partition(BEGIN)
    path.write_text(before + block + rest.partition(END)[2])


def _table(registry: Registry) -> Table:
    rows = [(v, owner) for owner, cls in _classes(registry) for v in variables(cls)]
    name = Column("setting", min_width=max(len(v.name) for v, _ in rows))
    table = Table(name, "default", "what it is", "of", box=SIMPLE_HEAD)
    for v, owner in rows:
        table.add_row(v.name, escape(v.default), escape(v.description), escape(owner))
    return table


def _meaning(variable: Variable) -> str:
    in_file = f", or `{variable.spellings[-1]}` for a file that holds it" if variable.secret else ""
    return (variable.description + in_file).replace("|", "\\|")


def _code(value: str) -> str:
    return f"`{value}`" if value else ""


def _classes(registry: Registry, *, distribution: str = "") -> Iterator[tuple[str, type[PluginSettings]]]:
    """(owner, class), core first, then by the owner's name."""
    yield "core", Settings
    owned = [(offer, cls) for cls, offer in registry.settings_classes().items()]
    for offer, cls in sorted(owned, key=lambda pair: (pair[0].kind, pair[0].name)):
        if distribution in ("", offer.distribution):
            yield f"{offer.name} ({offer.kind.replace('_', ' ')})", cls
