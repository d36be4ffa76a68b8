"""``agentrl check sandbox NAME``: the conformance kit against a configured backend."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from agentrl.cli.assignments import Assignments, read_assignments
from agentrl.errors import SandboxRefused, UsageError
from agentrl.plugins import load_plugins
from agentrl.sandbox import SandboxBackend
from agentrl.settings import resolve
from agentrl.testing.sandbox_checks import CHECKS, Check, Verdict, judge, with_known
from agentrl.testing.tagged import Tagged

_COLOURS = {"passed": "green", "failed": "bold red", "known": "yellow", "skipped": "dim"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. ``left``: machines that were still there at the end, deleted since."""

    verdicts: Sequence[Verdict]
    left: Sequence[str]

    @property
    def ok(self) -> bool:
        """Whether every promise is kept."""
        return not self.left and all(verdict.outcome != "failed" for verdict in self.verdicts)


def check(
    kind: Annotated[Literal["sandbox"], typer.Argument(metavar="sandbox", help="What to check.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The backend, as SWE_SANDBOX names it.")],
    assignments: Assignments = None,
    only: Annotated[str, typer.Option(metavar="PATTERN", help="Checks whose name contains or matches this.")] = "",
    known: Annotated[
        list[str] | None, typer.Option(metavar="CHECK=REASON", help="A check that is known to fail; it must then fail.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Run the conformance kit on a backend: real machines are made, used and deleted, and small images are built.

    Exit code 1 when a promise is broken or a machine was left behind.
    """
    chosen = select(only, known or ())
    backend = _backend(name, assignments)
    console = Console(stderr=as_json)
    outcome = asyncio.run(_check(backend, name, chosen, console))
    if as_json:
        typer.echo(json.dumps(document(name, outcome), indent=2))
    else:
        _show(outcome, console)
    return int(not outcome.ok)


def select(pattern: str, known: Sequence[str]) -> Sequence[Check]:
    """The checks that ``pattern`` is part of or matches, those in ``known`` (``CHECK=REASON``) marked. Raises: UsageError."""
    reasons = dict(_known(word) for word in known)
    names = [each.name for each in CHECKS]
    for name in reasons:
        if name not in names:
            raise UsageError(f"there is no check {name}; there are: {', '.join(names)}")
    chosen = [each for each in with_known(CHECKS, reasons) if pattern in each.name or fnmatch(each.name, pattern)]
    if not chosen:
        raise UsageError(f"no check is called like {pattern}; there are: {', '.join(names)}")
    return chosen


def _known(word: str) -> tuple[str, str]:
    name, _, reason = word.partition("=")
    if not reason:
        raise UsageError(f"{word!r} gives no reason: write CHECK=REASON")
    return name, reason


def document(name: str, outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON."""
    return {
        "sandbox": name,
        "ok": outcome.ok,
        "counts": dict(Counter(verdict.outcome for verdict in outcome.verdicts)),
        "checks": [
            {
                "name": verdict.check,
                "outcome": verdict.outcome,
                "reason": verdict.reason,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in outcome.verdicts
        ],
        "left": list(outcome.left),
    }


def _backend(name: str, assignments: Sequence[str] | None) -> SandboxBackend:
    overrides = read_assignments(assignments)
    registry = load_plugins(resolve(overrides={**overrides, "SWE_SANDBOX": name})).registry
    backend: SandboxBackend = registry.build(registry.get("sandboxes", name))
    return backend


async def _check(backend: SandboxBackend, name: str, chosen: Sequence[Check], console: Console) -> Outcome:
    """Judge one after the other. However it ends, machines of ours are gone afterwards. Raises: SandboxRefused."""
    tagged = Tagged(backend, secrets.token_hex(8))
    try:
        missing = await tagged.probe()
        if missing is not None:
            raise SandboxRefused(f"{name} makes no machines here: {missing}")
        try:
            verdicts = await _judge(tagged, chosen, console)
        finally:
            left = [info.id for info in await tagged.leftovers()]
            await asyncio.gather(*map(tagged.delete, left))
    finally:
        await backend.aclose()
    return Outcome(verdicts, left)


async def _judge(backend: SandboxBackend, chosen: Sequence[Check], console: Console) -> list[Verdict]:
    verdicts = []
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("checking", total=len(chosen))
        for each in chosen:
            progress.update(bar, description=each.name)
            verdict = await judge(each, backend)
            verdicts.append(verdict)
            progress.advance(bar)
            if verdict.outcome == "failed":
                line = f"[bold red]failed[/] {verdict.check}: {escape(verdict.reason)}"
                progress.console.print(line, highlight=False, soft_wrap=True)
    return verdicts


def _show(outcome: Outcome, console: Console) -> None:
    table = Table("check", "outcome", "reason", box=SIMPLE_HEAD)
    table.add_column("seconds", justify="right")
    for verdict in outcome.verdicts:
        colour = _COLOURS[verdict.outcome]
        reason = escape(verdict.reason[:200])
        table.add_row(verdict.check, f"[{colour}]{verdict.outcome}[/]", reason, f"{verdict.seconds:.1f}")
    console.print(table)
    counts = Counter(verdict.outcome for verdict in outcome.verdicts)
    console.print(", ".join(f"{count} {name}" for name, count in counts.items()), highlight=False)
    if outcome.left:
        names = escape(", ".join(outcome.left))
        console.print(f"[bold red]left behind[/], deleted now: {names}", highlight=False, soft_wrap=True)
