"""From a placed request to the ids that the engine gets.

Nothing here changes a session, so that it may run in a thread and its outcome be thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.tokens.codec import Codec
from agentrl.tokens.forest import Forest, Placement
from agentrl.tokens.forks import TEMPLATE_NOT_PREFIX_STABLE
from agentrl.tokens.ids import TokenIds
from agentrl.types import Tool


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request placed in the tree: ``ids`` is all that the engine gets, ``new_ids`` its part behind the parent."""

    placement: Placement
    ids: TokenIds
    new_ids: TokenIds
    neutralised: int


def render(codec: Codec, forest: Forest, placement: Placement, tools: tuple[Tool, ...]) -> Prompt:
    """The prompt at ``placement``. Raises: TemplateError."""
    if placement.parent_id is not None:
        extended = _extend(codec, forest, placement, tools)
        if extended is not None:
            return extended
        placement = placement.as_root(TEMPLATE_NOT_PREFIX_STABLE)
    # As placed, not as sent: echoes of our replies are put back as they were sampled, and noise is gone.
    whole = codec.render(placement.new, tools)
    ids = TokenIds.of(whole.ids)
    return Prompt(placement, ids, ids, whole.neutralised)


def _extend(codec: Codec, forest: Forest, placement: Placement, tools: tuple[Tool, ...]) -> Prompt | None:
    """The stored ids up to the parent's reply, and the new messages rendered behind them; None when the codec cannot."""
    assert placement.parent_id is not None
    last = forest.last_id(placement.parent_id)
    closed = last in codec.stop_token_ids
    added = codec.extend(placement.history, placement.new, tools, closed=closed, last_id=last if closed else None)
    if added is None:
        return None
    new = TokenIds.of(added.ids)
    return Prompt(placement, forest.prompt(placement.parent_id) + new, new, added.neutralised)
