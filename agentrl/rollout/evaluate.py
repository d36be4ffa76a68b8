"""What a set of graded attempts says about a policy: pass@k with its uncertainty.

pass@k is the unbiased estimate of the chance that at least one of k attempts solves a task: over a task with n graded
attempts of which c solve it, ``1 - C(n-c, k) / C(n, k)``; over a data set, the mean of the tasks with n >= k.

The interval is Wilson's, of 95 %, with the tasks (not the attempts, which are not independent) as observations. A task's
estimate lies between 0 and 1, so its variance is at most that of a coin with the same mean: the interval is never too
narrow for that reason, needs no random numbers, and stays honest when everything or nothing is solved.

Aborted attempts are no observations: they are counted, not graded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb, sqrt
from statistics import fmean
from typing import Any

from agentrl.outcomes import RULES, ExitStatus
from agentrl.types import Rollout

Z = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """``value`` with its 95 % interval from ``low`` to ``high``, over ``tasks`` tasks."""

    value: float
    low: float
    high: float
    tasks: int


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """The chance that k of these attempts, drawn without replacement, hold a solved one; needs ``attempts >= k``."""
    return 1.0 - comb(attempts - solved, k) / comb(attempts, k)


def wilson(mean: float, count: int) -> tuple[float, float]:
    """Wilson's score interval for a mean of ``count`` values in [0, 1]."""
    spread = Z * Z / count
    centre = (mean + spread / 2) / (1 + spread)
    half = sqrt(spread * (mean * (1 - mean) + spread / 4)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def estimate(counts: Iterable[tuple[int, int]], k: int) -> Estimate | None:
    """pass@k of (attempts, solved) pairs, one a task; None when no task has k attempts."""
    values = [pass_at_k(attempts, solved, k) for attempts, solved in counts if attempts >= k]
    if not values:
        return None
    mean = fmean(values)
    return Estimate(mean, *wilson(mean, len(values)), len(values))


def solves(rollout: Rollout) -> bool:
    """Whether the grader said so, however the agent ended."""
    return rollout.grade is not None and rollout.grade.exit_status is ExitStatus.SOLVED


def results(rollouts: Sequence[Rollout], ks: Iterable[int]) -> dict[str, Any]:
    """The numbers of an evaluation, as JSON."""
    tasks: defaultdict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        tasks[rollout.task_id].append(rollout)
    levels: defaultdict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        levels[rollout.level].append(rollout)
    rows = {task_id: _task(members) for task_id, members in tasks.items()}
    chosen = sorted(set(ks))
    return {
        "tasks": len(tasks),
        "attempts": len(rollouts),
        "graded": sum(row["graded"] for row in rows.values()),
        "pass_at_k": _estimates(rollouts, chosen),
        "pass_at_k_by_level": {level: _estimates(levels[level], chosen) for level in sorted(levels) if level},
        "exit_status": dict(Counter(r.exit_status.value for r in rollouts)),
        "causes": dict(Counter(RULES[r.exit_status].cause for r in rollouts)),
        "by_task": rows,
    }


def _estimates(rollouts: Iterable[Rollout], ks: Iterable[int]) -> dict[str, dict[str, float]]:
    counts: defaultdict[str, list[bool]] = defaultdict(list)
    for rollout in rollouts:
        if RULES[rollout.exit_status].has_reward:
            counts[rollout.task_id].append(solves(rollout))
    pairs = [(len(solved), sum(solved)) for solved in counts.values()]
    made = {str(k): estimate(pairs, k) for k in ks}
    return {k: asdict(found) for k, found in made.items() if found is not None}


def _task(members: Sequence[Rollout]) -> Mapping[str, Any]:
    graded = [r for r in members if RULES[r.exit_status].has_reward]
    return {
        "attempts": len(members),
        "graded": len(graded),
        "solved": sum(map(solves, graded)),
        "exit_status": dict(Counter(r.exit_status.value for r in members)),
    }
