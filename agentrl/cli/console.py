"""What a person sees of a run: a progress line on a terminal, plain lines elsewhere, a summary at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from agentrl.rollout.board import Board
from agentrl.types import Rollout

_BARS = " ▁▂▃▄▅▆▇█"


def bar(share: float) -> str:
    """A share in [0, 1] as one block character."""
    return _BARS[round(min(max(share, 0.0), 1.0) * (len(_BARS) - 1))]


class ConsoleWatcher:
    """Implements :class:`agentrl.rollout.run.Watcher`. ``total`` 0: iterations until stopped."""

    def __init__(self, console: Console, board: Board, *, total: int, history: Sequence[float] = ()) -> None:
        self._console, self._board, self._total = console, board, total
        self._rewards = list(history)
        self._solved = 0
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._bar = self._progress.add_task("starting", total=None)

    def __enter__(self) -> ConsoleWatcher:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._board.close()

    def phase(self, iteration: int, phase: str, detail: str = "") -> None:
        """Show what is going on."""
        self._progress.reset(self._bar, total=None, description=f"iteration {iteration}: {phase} {detail}".rstrip())

    def rollouts(self, iteration: int, total: int) -> None:
        """Show a bar over the rollouts of this iteration."""
        self._solved = 0
        self._progress.reset(self._bar, total=total, description=f"iteration {iteration}: rollouts")

    def rollout(self, rollout: Rollout) -> None:
        """Advance it."""
        self._solved += (rollout.reward or 0.0) > 0
        self._progress.update(self._bar, advance=1, description=f"iteration {rollout.iteration}: {self._solved} solved")
        if rollout.reward is None:
            self._console.print(
                f"[yellow]{rollout.id} aborted[/]: {rollout.exit_status}: {escape(rollout.message)}", highlight=False
            )

    def iteration(self, metrics: Mapping[str, Any]) -> None:
        """Print the iteration's line."""
        self._board.write(metrics)
        self._rewards.append(metrics.get("reward", 0.0))
        self._console.print(_line(metrics, self._rewards, self._total), highlight=False, soft_wrap=True)


def _line(metrics: Mapping[str, Any], rewards: Sequence[float], total: int) -> str:
    of = f"/{total}" if total else ""
    aborted = sum(metrics["rollouts_aborted"].values())
    parts = [
        f"[bold]iteration {metrics['iteration'] + 1}{of}[/]",
        f"reward [bold green]{metrics['reward']:.3f}[/]" if "reward" in metrics else "[yellow]no reward[/]",
        f"[green]{''.join(map(bar, rewards[-24:]))}[/]",
        *(f"{escape(level)} {reward:.2f}" for level, reward in metrics.get("reward_by_level", {}).items()),
        f"{metrics['rollouts_graded']} graded" + (f", [yellow]{aborted} aborted[/]" if aborted else ""),
        f"{metrics['tokens_trained']}/{metrics['tokens_sampled']} tokens",
    ]
    if "logprob_abs_diff" in metrics:
        parts.append(f"|Δ log p| {metrics['logprob_abs_diff']:.1e}")
    parts.append(" ".join(f"{phase} {seconds:.1f}s" for phase, seconds in metrics["seconds"].items()))
    return "  ".join(parts)


def print_summary(console: Console, rows: Sequence[Mapping[str, Any]], directory: Path, plot: Path | None) -> None:
    """What a run came to: first against last iterations, outcomes, where to look."""
    measured = [row for row in rows if "reward" in row]
    if not measured:
        console.print("no iteration was finished")
        return
    span = max(1, min(5, len(measured) // 2))
    table = Table(title=f"{len(measured)} iterations", title_justify="left")
    table.add_column("solve rate")
    for head in (f"first {span}", f"last {span}"):
        table.add_column(head, justify="right")
    for name in ("all", *sorted({level for row in measured for level in row["reward_by_level"]})):
        cells = [_mean(part, name) for part in (measured[:span], measured[-span:])]
        table.add_row(escape(name), *("-" if cell is None else f"{cell:.3f}" for cell in cells))
    console.print(table)
    statuses = sum((Counter(row["exit_status"]) for row in measured), Counter[str]())
    console.print(
        "rollouts: " + ", ".join(f"{count} {status}" for status, count in statuses.most_common()), highlight=False
    )
    console.print(f"run:  {directory}", markup=False, highlight=False, soft_wrap=True)
    if plot is not None:
        console.print(f"plot: {plot}", markup=False, highlight=False, soft_wrap=True)


def _mean(rows: Sequence[Mapping[str, Any]], level: str) -> float | None:
    values = [row["reward"] if level == "all" else row["reward_by_level"].get(level) for row in rows]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
