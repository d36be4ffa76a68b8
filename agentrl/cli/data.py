"""``agentrl data convert``: tasks as the data files of other training frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.errors import UsageError
from agentrl.plugins import load_plugins
from agentrl.rollout.convert import Format, convert, write_rows
from agentrl.settings import resolve


def data(
    action: Annotated[str, typer.Argument(metavar="convert", help="What to do.")],
    source: Annotated[Path, typer.Argument(help="JSONL file, or folder of task folders.")],
    out: Annotated[Path, typer.Argument(help="JSONL file to write.")],
    assignments: Assignments = None,
    to: Annotated[Format, typer.Option("--format", help="Whose data file it is to be.")] = "slime",
) -> None:
    """Convert tasks of SWE_TRAIN_PROTOCOL into rows whose prompts are messages."""
    if action != "convert":
        raise UsageError(f"there is no `agentrl data {action}`: it is `agentrl data convert SOURCE OUT --format slime`")
    if not source.exists():
        raise UsageError(f"{source}: no such file")
    resolved = resolve(overrides=read_assignments(assignments))
    registry = load_plugins(resolved).registry
    protocol = resolved.settings.train_protocol
    task_format = registry.build(registry.get("task_formats", protocol))
    grader = registry.build(registry.get("graders", protocol))
    converted = convert(source, task_format, grader, to=to)
    write_rows(out, converted)
    typer.echo(f"{len(converted)} tasks of {protocol} in {out}")
