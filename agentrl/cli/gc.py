"""``agentrl gc``: delete machines that dead runs left behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.errors import UsageError
from agentrl.lease import collect_garbage
from agentrl.plugins import load_plugins
from agentrl.sandbox import SandboxBackend
from agentrl.settings import resolve
from agentrl.types import SandboxInfo

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def gc(
    assignments: Assignments = None,
    run: Annotated[str, typer.Option(metavar="ID", help="Machines of this run.")] = "",
    older: Annotated[
        str, typer.Option(metavar="AGE", help="Machines of any run that are older, such as 2h or 90m.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
) -> int:
    """Delete machines that dead runs left behind; say which: --run, --older, or both."""
    if not run and not older:
        raise UsageError("say which machines: --run ID, or --older AGE for those of every run")
    resolved = resolve(overrides=read_assignments(assignments))
    registry = load_plugins(resolved).registry
    backend: SandboxBackend = registry.build(registry.get("sandboxes", resolved.settings.sandbox))
    found = asyncio.run(_collect(backend, run or None, seconds(older) if older else None, dry_run=dry_run))
    console = Console()
    for machine in found:
        console.print(machine.id, dict(machine.labels), highlight=False, soft_wrap=True)
    console.print(f"{len(found)} {'found' if dry_run else 'deleted'}")
    return 0


def seconds(age: str) -> float:
    """``90``, ``90s``, ``5m``, ``2h``, ``1d`` in seconds. Raises: UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", age.strip())
    if match is None:
        raise UsageError(f"{age!r} is no age: write a number with s, m, h or d, such as 2h")
    return float(match[1]) * _UNITS[match[2]]


async def _collect(
    backend: SandboxBackend, run_id: str | None, older_sec: float | None, *, dry_run: bool
) -> Sequence[SandboxInfo]:
    try:
        return await collect_garbage(backend, run_id=run_id, older_sec=older_sec, dry_run=dry_run)
    finally:
        await backend.aclose()
