"""What turns a conversation into token ids and sampled ids back into a message: one interface, two implementations.

Rules that every codec keeps: ids that were sampled are never encoded again, so there is no "render the history once
more" here, only "what to append"; text that a client or a tool sent never becomes a control token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentrl.tokens.probe import Probe
from agentrl.types import Message, Tool


@dataclass(frozen=True, slots=True)
class Rendered:
    """Ids of a prompt or of its new part. ``neutralised``: spellings of control tokens that stood in content and were
    encoded as plain text."""

    ids: tuple[int, ...]
    neutralised: int = 0


@dataclass(frozen=True, slots=True)
class Parsed:
    """A sampled reply as a message: Thinking at most once and first, then Text and ToolCall blocks in their order; a
    reply without text and calls has one empty Text block.

    A malformed tool call (no JSON, no name, arguments that are no object, never closed) stays visible text exactly as
    sampled and counts in ``malformed``. A well-formed call of an unknown tool is a call: the agent answers it.
    """

    message: Message
    malformed: int = 0


class Codec(Protocol):
    """The chat format of one model. Synchronous and CPU-bound; safe to call from worker threads."""

    @property
    def name(self) -> str:
        """Stable name for logs and reports, such as ``template`` or ``renderers:qwen3``."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a reply; the engine must stop at each of them."""
        ...

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Rendered:
        """The whole prompt, ready for sampling. Raises: TemplateError."""
        ...

    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Tool],
        *,
        closed: bool,
        last_id: int | None = None,
    ) -> Rendered | None:
        """What to append behind ``parent's prompt + parent's sampled ids`` to ask for the next reply.

        ``history`` ends with our stored assistant message; ``closed`` says whether its sampled ids end with a stop
        token (if not, the turn is closed first), ``last_id`` with which one: formats whose replies end with the next role's
        marker need to know. The new messages are rendered once, as one block, with the separator that the model
        did not emit. None: the template cannot do that, the caller renders a new chain (``template_not_prefix_stable``).
        Costs O(new). Raises: TemplateError.
        """
        ...

    def parse(self, ids: Sequence[int], tools: Sequence[Tool], mint: Callable[[], str]) -> Parsed:
        """The message that ``ids`` spell, without the stop token; ``mint`` gives each tool call its id. Never raises."""
        ...

    def spell(self, ids: Sequence[int]) -> str:
        """``ids`` as text with its control tokens: for people, never to be encoded again."""
        ...

    def probe(self) -> Probe:
        """Try the format out on made-up conversations, before any rollout."""
        ...
