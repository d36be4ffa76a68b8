"""``agentrl plugins``: everything that can be chosen, whether it can be used here, and the plugins that are broken."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.cli.describe import offer_document
from agentrl.plugins import load_plugins
from agentrl.registry import KINDS, Registry
from agentrl.settings import resolve


def plugins(
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List everything that can be chosen."""
    registry = load_plugins(resolve(overrides=read_assignments(assignments))).registry
    listed = listing(registry)
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        _show(listed, Console())


def listing(registry: Registry) -> dict[str, Any]:
    """Offers and broken plugins as JSON. ``missing`` is null for what can be used."""
    return {
        "offers": [
            {**offer_document(offer), "missing": registry.missing(offer)}
            for kind in KINDS
            for offer in registry.offers(kind)
        ],
        "broken": [
            {
                "plugin": broken.plugin,
                "module": broken.module,
                "origin": broken.origin,
                "error": f"{type(broken.error).__name__}: {broken.error}",
            }
            for broken in registry.broken
        ],
    }


def _show(listed: dict[str, Any], console: Console) -> None:
    table = Table("kind", "name", "origin", "extra", "what it is", "here", box=SIMPLE_HEAD)
    for offer in listed["offers"]:
        cells = (KINDS[offer["kind"]].noun, offer["name"], offer["origin"], offer["extra"], offer["summary"])
        table.add_row(*map(escape, cells), escape(offer["missing"] or "usable"))
    console.print(table)
    for broken in listed["broken"]:
        line = (
            f"[bold red]broken:[/] {escape(broken['plugin'])} ({escape(broken['origin'])}): {escape(broken['error'])}"
        )
        console.print(line, highlight=False, soft_wrap=True)
