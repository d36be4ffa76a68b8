"""Whose request is it: the agent's, or one of code that the policy runs?

Such code inherits the agent's address and key. What it asks is answered, but never trained: a policy must not be able to
choose its own training data.

The rule. The first request of a session is the harness's: it comes before anything that the policy could run. From then on
a request is *foreign* when

1. its program differs: another dialect, another user agent (``claude-cli/2.1``; what follows the first space is ignored), or
   another run of that program where it names its runs; or
2. it begins a conversation with a system prompt and tools that both are new, under no name of a chain of its own (as
   sub-agents have), after the policy could run something: a reply with a tool call was recorded, or a turn
   continued another one; or
3. it continues a foreign turn.

Compaction and summaries keep the system prompt or the tools, sub-agents name their chain, side calls at the start (a title)
come before the first tool call: all of these are the harness's. Foreign turns cost what turns cost, so budgets hold.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from agentrl.tokens.forest import Placement
from agentrl.types import Reply, ToolCall

FOREIGN = "foreign_client"
"""The lane of other programs, and why a turn is kept out of training."""


@dataclass(slots=True)
class Origins:
    """The memory of one session, see the module. ``harness``: dialect and client of the first request; ``heads``: the tools
    and system prompts that it has used; ``foreign``: the turns that are."""

    harness: tuple[str, str] | None = None
    heads: set[Hashable] = field(default_factory=set)
    settled: bool = False
    foreign: set[str] = field(default_factory=set)

    def lane_of(self, dialect: str, client: str, lane: str) -> str:
        """Where a request is placed: other programs share no lane with the harness."""
        self.harness = self.harness or (dialect, client)
        return lane if (dialect, client) == self.harness else FOREIGN

    def is_foreign(self, placement: Placement) -> bool:
        """Judge a request that was placed in the lane of :meth:`lane_of`."""
        if placement.lane == FOREIGN or placement.parent_id in self.foreign:
            return True
        if placement.parent_id is not None or placement.lane:
            return False
        return self.settled and self.heads.isdisjoint(_heads(placement))

    def begun(self, turn_id: str, placement: Placement, *, foreign: bool) -> None:
        """Remember a turn that was judged."""
        if foreign:
            self.foreign.add(turn_id)
        else:
            self.heads.update(_heads(placement))
            self.settled = self.settled or placement.parent_id is not None

    def answered(self, reply: Reply) -> None:
        """Remember that a reply may have made somebody run something."""
        self.settled = self.settled or any(isinstance(block, ToolCall) for block in reply.message.blocks)


def _heads(placement: Placement) -> set[Hashable]:
    outline = placement.outline
    return {("tools", outline.tools), ("system", outline.system)}
