"""From a request to the ids that the engine gets: where it continues, and what is new there.

Nothing here changes a session, so that it may run in a thread and its outcome be thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.tokens.codec import Codec
from agentrl.tokens.forest import Forest, Placement
from agentrl.tokens.forks import TEMPLATE_NOT_PREFIX_STABLE
from agentrl.types import ChatRequest


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request placed in the tree: ``ids`` is all that the engine gets, ``new_ids`` its part behind the parent."""

    placement: Placement
    ids: list[int]
    new_ids: tuple[int, ...]
    neutralised: int


def prepare(codec: Codec, forest: Forest, request: ChatRequest, lane: str) -> Prompt:
    """Place and render. Raises: TemplateError."""
    placement = forest.place(request, lane=lane)
    if placement.parent_id is not None:
        extended = _extend(codec, forest, placement, request)
        if extended is not None:
            return extended
        placement = placement.as_root(TEMPLATE_NOT_PREFIX_STABLE)
    # As placed, not as sent: echoes of our replies are put back as they were sampled, and noise is gone.
    whole = codec.render(placement.new, request.tools)
    return Prompt(placement, list(whole.ids), tuple(whole.ids), whole.neutralised)


def _extend(codec: Codec, forest: Forest, placement: Placement, request: ChatRequest) -> Prompt | None:
    """The stored ids up to the parent's reply, and the new messages rendered behind them; None when the codec cannot."""
    assert placement.parent_id is not None
    prefix = forest.prompt_ids(placement.parent_id)
    closed = prefix[-1] in codec.stop_token_ids
    added = codec.extend(
        placement.history, placement.new, request.tools, closed=closed, last_id=prefix[-1] if closed else None
    )
    if added is None:
        return None
    return Prompt(placement, [*prefix, *added.ids], tuple(added.ids), added.neutralised)
