"""From a verdict to a reward: the one place where that is decided. Graders judge, they do not shape.

A grader whose tests can be counted records ``partial`` in the grade's details: the share of what was asked for that works,
0 when the patch broke something that worked before.
"""

from __future__ import annotations

from typing import Any, Literal

from agentrl.types import Grade

Shaping = Literal["solved", "partial"]


def reward_of(grade: Grade, shaping: Shaping) -> float:
    """``solved``: what the grader says. ``partial``: the share that works where the grader counted, else what it says."""
    partial: Any = grade.details.get("partial")
    counted = isinstance(partial, int | float) and 0.0 <= partial <= 1.0
    return max(grade.reward, float(partial)) if shaping == "partial" and counted else grade.reward
