"""Which sandboxes are started ahead: those of the agents of the tasks that come next (``AGENTRL_WARM``).

The order of tasks is known: first the rollouts of this iteration that wait for their turn, then those of the next. While the
engine is busy with others, or trains, their sandboxes boot. Not here: how (:mod:`agentrl.lease.warm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from agentrl.rollout.one import RolloutParts, agent_spec
from agentrl.types import SandboxSpec, Task


class Ahead:
    """Tells the lease what comes. Does nothing when ``AGENTRL_WARM`` is 0."""

    def __init__(self, parts: RolloutParts) -> None:
        self._parts = parts
        self._told: Mapping[str, int] = {}

    def want(self, tasks: Iterable[Task]) -> None:
        """The tasks of the next rollouts, in order, each as often as it has rollouts; only as many are looked at as needed."""
        size = self._parts.settings.warm
        if size:
            specs: dict[str, SandboxSpec] = {}
            coming = list(islice(tasks, size))
            for task in coming:
                specs[task.id] = specs.get(task.id) or agent_spec(task, self._parts)
            self._parts.lease.warm([specs[task.id] for task in coming])

    def counted(self) -> dict[str, Mapping[str, int]]:
        """Since the last call: ``{"warm": {"hits": …, "misses": …}}``; empty when nothing is started ahead."""
        if not self._parts.settings.warm:
            return {}
        before, self._told = self._told, self._parts.lease.counts
        return {"warm": {name: count - before.get(name, 0) for name, count in self._told.items()}}
