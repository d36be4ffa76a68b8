"""The reward of a run as a picture: mean solve rate for each iteration, thin as measured, thick smoothed, by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WINDOW = 5


def smooth(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """Trailing mean over at most ``window`` values; the same length as ``values``."""
    return [sum(part) / len(part) for i in range(len(values)) if (part := values[max(0, i - window + 1) : i + 1])]


def plot_reward(rows: Sequence[Mapping[str, Any]], path: Path, *, title: str) -> None:
    """Write a PNG. Rows without ``reward`` (all rollouts aborted) leave a gap."""
    from matplotlib.figure import Figure  # seconds to import, and only needed at the end of a run

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.subplots()
    for level, points in sorted(_curves(rows).items()):
        iterations, rewards = [i for i, _ in points], [reward for _, reward in points]
        (line,) = axes.plot(iterations, rewards, linewidth=0.8, alpha=0.4)
        axes.plot(iterations, smooth(rewards), linewidth=2.2, color=line.get_color(), label=level)
    axes.set(xlabel="iteration", ylabel=f"solve rate (thick: mean of {WINDOW})", ylim=(-0.02, 1.02), title=title)
    axes.grid(alpha=0.25)
    if axes.lines:
        axes.legend(loc="upper left")
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary)
    temporary.replace(path)


def _curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        levels = row.get("reward_by_level", {})
        named = levels if len(levels) == 1 else {**levels, "all": row["reward"]} if "reward" in row else {}
        for level, reward in named.items():
            curves.setdefault(level, []).append((row["iteration"], reward))
    return curves
