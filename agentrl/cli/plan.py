"""``agentrl plan``: the chosen combination, every setting with its source, and every problem at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.cli.describe import document, setting_rows
from agentrl.plugins import load_plugins
from agentrl.rollout.plan import Plan, Purpose, make_plan
from agentrl.settings import resolve


def plan(
    assignments: Assignments = None,
    purpose: Annotated[Purpose, typer.Option("--for", help="What is to be done with it.")] = "train",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show the chosen combination and what is wrong with it; exit code 2 if anything is."""
    made = open_plan(assignments, purpose)
    if as_json:
        typer.echo(json.dumps(document(made), indent=2))
    else:
        show(made, Console())
    return 2 if made.problems else 0


def open_plan(assignments: Sequence[str] | None, purpose: Purpose) -> Plan:
    """The plan of the environment and a command line. Raises: SettingsError, PluginError."""
    resolved = resolve(overrides=read_assignments(assignments))
    return make_plan(resolved, load_plugins(resolved), purpose=purpose)


def show(made: Plan, console: Console) -> None:
    """Print all of it."""
    console.print(_parts(made))
    console.print(_settings(made))
    for title, lines, style in (
        ("Together", made.abilities, "cyan"),
        ("Notes", made.notes, "yellow"),
        ("Problems", made.problems, "bold red"),
    ):
        if lines:
            console.print(f"[{style}]{title}[/]")
        for line in lines:
            console.print(f"  • {escape(line)}", highlight=False, soft_wrap=True)
    if not made.problems:
        console.print(f"[green]Ready[/] to {made.purpose} with {len(made.tasks)} tasks.")


def _parts(made: Plan) -> Table:
    table = Table("part", "name", "origin", "what it is", box=SIMPLE_HEAD)
    for role, offers in made.chosen.items():
        for offer in offers:
            table.add_row(role, escape(offer.name), escape(offer.origin), escape(offer.summary))
    if made.engine_url:
        table.add_row("engine", escape(made.engine_url), "AGENTRL_ENGINE", "an engine that runs already")
    return table


def _settings(made: Plan) -> Table:
    rows = setting_rows(made)
    name = Column("setting", min_width=max(len(row.variable.name) for row in rows))
    table = Table(name, Column("value", overflow="fold"), "from", "of", box=SIMPLE_HEAD)
    for row in rows:
        style = "dim" if row.source == "default" else "bold"
        table.add_row(row.variable.name, escape(row.value), row.source, escape(row.owner), style=style)
    return table
