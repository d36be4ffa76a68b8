"""``agentrl outcomes``: how a rollout can end, and what follows; also the generated ``docs/outcomes.md``."""

from __future__ import annotations

from inspect import cleandoc

import typer

import agentrl.outcomes
from agentrl.outcomes import markdown_table


def outcomes() -> None:
    """Print the table of exit statuses as Markdown; ``docs/outcomes.md`` is this output."""
    typer.echo(page())


def page() -> str:
    """The page of the documentation."""
    about = cleandoc(agentrl.outcomes.__doc__ or "").replace("``", "`")
    return f"# Outcomes\n\n{about}\n\n{markdown_table()}"
