"""``agentrl verify RUN``: the replay check, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentrl.errors import UsageError
from agentrl.rollout.journal import FILE, read_journal
from agentrl.rollout.verify import Report, Violation
from agentrl.rollout.verify import verify as verify_rollouts
from agentrl.settings import resolve


def verify(run: Annotated[str, typer.Argument(metavar="RUN", help="Id or folder of a run.")]) -> int:
    """Prove each sample of a run against the recorded engine calls; exit code 1 at the first violation."""
    console = Console()
    try:
        report = verify_rollouts(read_journal(_journal(run)))
    except Violation as violation:
        console.print(f"[red]violation[/] {escape(str(violation))}", highlight=False, soft_wrap=True)
        return 1
    console.print(_table(report))
    return 0


def _journal(run: str) -> Path:
    for folder in (Path(run), resolve().settings.run_dir / run):
        if (folder / FILE).is_file():
            return folder / FILE
    raise UsageError(f"there is no {FILE} in {run} nor in {resolve().settings.run_dir / run}")


def _table(report: Report) -> Table:
    table = Table(title="every trained token was sampled, every sampled token is trained once", title_justify="left")
    table.add_column("checked")
    table.add_column("count", justify="right")
    rows = {
        "rollouts": report.rollouts,
        "of these aborted (no reward, no samples)": report.aborted,
        "engine calls": report.calls,
        "samples": report.samples,
        "tokens sampled": report.tokens_sampled,
        "tokens trained": report.tokens_trained,
        **{f"turns not trained: {reason}": count for reason, count in sorted(report.excluded.items()) if count},
        **{f"forks: {reason}": count for reason, count in sorted(report.forks.items())},
    }
    for name, count in rows.items():
        table.add_row(name, f"{count:,}")
    return table
