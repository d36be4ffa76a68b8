"""``agentrl gc``: delete machines that dead runs left behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.errors import UsageError
from agentrl.lease import Garbage, Ledger, collect_garbage
from agentrl.lease.ledger import FILE
from agentrl.plugins import load_plugins
from agentrl.registry import same_name
from agentrl.sandbox import SandboxBackend
from agentrl.settings import resolve

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def gc(
    assignments: Assignments = None,
    run: Annotated[str, typer.Option(metavar="ID", help="Machines of this run only.")] = "",
    older: Annotated[
        str, typer.Option(metavar="AGE", help="Older machines only, such as 2h or 90m; also of runs of other hosts.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also machines of runs that are still alive.")] = False,
) -> int:
    """Delete the machines of dead runs in AGENTRL_RUN_DIR, or of the run or age given; exit code 1 when one stays."""
    older_sec = seconds(older) if older else None
    resolved = resolve(overrides=read_assignments(assignments))
    registry = load_plugins(resolved).registry
    backend: SandboxBackend = registry.build(registry.get("sandboxes", resolved.settings.sandbox))
    console = Console()
    with ExitStack() as stack:
        runs = _Runs()
        for path in sorted(resolved.settings.run_dir.glob(f"*/{FILE}")):
            runs.look_at(path, same_name(resolved.settings.sandbox), run, stack)
        if run in runs.alive and not force:
            raise UsageError(f"run {run} is alive: stop it first, or delete its machines under it with --force")
        found = asyncio.run(_collect(backend, runs, run, older_sec, dry_run=dry_run, force=force))
    _show(console, found, dry_run=dry_run)
    for note in runs.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    return int(any(garbage.error for garbage in found))


def seconds(age: str) -> float:
    """``90``, ``90s``, ``5m``, ``2h``, ``1d`` in seconds. Raises: UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", age.strip())
    if match is None:
        raise UsageError(f"{age!r} is no age: write a number with s, m, h or d, such as 2h")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(slots=True)
class _Runs:
    """The runs of this host, as their ledgers tell."""

    alive: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    ledgers: list[Ledger] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def look_at(self, path: Path, backend: str, only: str, stack: ExitStack) -> None:
        """One run. A dead one stays dead until ``stack`` is left: nobody can go on with it meanwhile."""
        ledger = Ledger(path, path.parent.name, backend)
        names = ledger.read().runs or {ledger.run_id}
        if only and only not in names:
            return
        if not stack.enter_context(ledger.sole()):
            self.alive |= names
            self.notes.append(f"{path.parent.name} is alive")
            return
        self.dead |= names
        self.ledgers.append(ledger)
        for other, count in ledger.strangers().items():
            self.notes.append(f"{path.parent.name} has {count} of {other}: agentrl gc SWE_SANDBOX={other}")


async def _collect(
    backend: SandboxBackend, runs: _Runs, run: str, older_sec: float | None, *, dry_run: bool, force: bool
) -> Sequence[Garbage]:
    chosen = {run} if run else None if older_sec is not None else runs.dead | (runs.alive if force else set())
    spared = () if force else runs.alive
    try:
        return await collect_garbage(
            backend,
            runs=chosen,
            except_runs=spared,
            older_sec=older_sec or 0.0,
            ledgers=runs.ledgers,
            dry_run=dry_run,
        )
    finally:
        await backend.aclose()


def _show(console: Console, found: Sequence[Garbage], *, dry_run: bool) -> None:
    done = "found" if dry_run else "deleted"
    if found:
        table = Table()
        for head in ("sandbox", "run", "rollout", "age", ""):
            table.add_column(head, justify="right" if head == "age" else "left", overflow="fold")
        for garbage in found:
            ended = f"[red]not deleted: {escape(garbage.error)}[/]" if garbage.error else done
            words = escape(garbage.id), escape(garbage.run_id), escape(garbage.rollout_id)
            table.add_row(*words, _age(garbage.age_sec), ended if garbage.listed else f"{ended} (by its ledger)")
        console.print(table)
    failed = sum(bool(garbage.error) for garbage in found)
    console.print(f"{len(found) - failed} {done}" + (f", [red]{failed} not[/]" if failed else ""), highlight=False)


def _age(age_sec: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if age_sec >= size:
            return f"{age_sec / size:.1f}{unit}"
    return f"{max(0.0, age_sec):.0f}s"
