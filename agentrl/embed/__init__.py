"""Rollouts for somebody else's training loop: all that a plugin for another framework may import besides :mod:`agentrl.api`.

The loop keeps its data, its engine and its training. It hands over task rows one at a time and gets finished rollouts
back; which machines, agents and graders they use is decided by environment variables, as everywhere. Not here: what a framework's
own arguments and samples are called (its plugin knows).
"""

from __future__ import annotations

from agentrl.embed.host import Host, host
from agentrl.embed.rollouts import Rollouts, open_rollouts
from agentrl.rollout.convert import row_of
from agentrl.rollout.one import RolloutId

__all__ = ["Host", "RolloutId", "Rollouts", "host", "open_rollouts", "row_of"]
