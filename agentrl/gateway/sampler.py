"""The innermost call of a turn: the engine samples, the codec reads what was sampled.

Not here: whether a turn may be sampled (:mod:`agentrl.gateway.guards`) and what is recorded (:mod:`agentrl.gateway.turn`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentrl.errors import AgentrlError, EngineUnavailable
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.parts import TurnParts
from agentrl.gateway.session import Session
from agentrl.gateway.wire import scrub
from agentrl.middleware import TurnContext
from agentrl.tokens.ids import TokenIds
from agentrl.types import (
    Block,
    ChatRequest,
    Finish,
    Generation,
    Message,
    Reply,
    SamplingParams,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)

SILENCE = "(no text)"
"""What a client reads where the model said nothing visible."""


class Sampler:
    """The innermost call of a turn: engine and parser. Remembers what it sampled, so that nobody can replace it."""

    def __init__(
        self, parts: TurnParts, session: Session, request: ChatRequest, prompt: TokenIds, turn_id: str
    ) -> None:
        self._parts, self._session, self._request = parts, session, request
        self._prompt, self._turn_id = prompt, turn_id
        self._sampled: tuple[Reply, Generation] | None = None
        self.malformed = self._minted = 0

    async def __call__(self, turn: TurnContext) -> Reply:
        """Sample once and parse. Raises: EngineUnavailable when the engine aborted the generation."""
        if self._sampled is not None:
            raise AgentrlError("a middleware called call_next twice: one turn is sampled once")
        parts, session, prompt = self._parts, self._session, self._prompt
        request_id = f"{session.id}-{self._turn_id}"
        params = _params(session.sampling or parts.sampling, turn, parts.codec.stop_token_ids)
        generation = await parts.engine.generate(prompt, params, request_id, routing_key=session.id)
        session.calls.append(prompt, generation)
        size = len(generation.ids) * 4
        parsed = await parts.offload(size, parts.codec.parse, generation.ids, self._request.tools, self._mint)
        self.malformed = parsed.malformed
        message, usage = _audible(parsed.message), Usage(len(prompt), len(generation.ids))
        request = self._request
        reply = Reply(message, _finish(generation, message), usage, self._turn_id, request.model, request.tools)
        self._sampled = (reply, generation)
        if self.aborted:
            raise EngineUnavailable("the engine aborted this generation; ask again")
        return reply

    def _mint(self) -> str:
        self._minted += 1
        return f"call_{self._turn_id}{self._minted:04x}"

    @property
    def sampled(self) -> tuple[Reply, Generation]:
        """What was sampled. Raises: AgentrlError before that."""
        if self._sampled is None:
            raise AgentrlError("a middleware answered without asking the engine: it must return what call_next gave it")
        return self._sampled

    @property
    def aborted(self) -> bool:
        """Whether the engine cut the generation off."""
        return self._sampled is not None and self._sampled[1].finish == "abort"

    def check(self, reply: Reply) -> None:
        """Raises: AgentrlError when ``reply`` is not the one that was sampled."""
        if self.sampled[0] is not reply:
            raise AgentrlError("a middleware returned another reply than the sampled one: it must not alter replies")


def _params(sampling: SamplingPolicy, turn: TurnContext, stop_token_ids: Sequence[int]) -> SamplingParams:
    return SamplingParams(
        max_new_tokens=turn.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop=turn.request.stop,
        stop_token_ids=tuple(stop_token_ids),
    )


def _finish(generation: Generation, message: Message) -> Finish:
    if generation.finish != "stop":
        return generation.finish
    return "tool_calls" if any(isinstance(b, ToolCall) for b in message.blocks) else "stop"


def _audible(message: Message) -> Message:
    """``message`` in strings that JSON can carry, with a visible block: clients throw blank replies away and ask again."""
    blocks = tuple(_scrubbed(b) for b in message.blocks if not (isinstance(b, Text) and not b.text.strip()))
    if not any(isinstance(b, Text | ToolCall) for b in blocks):
        blocks = (*blocks, Text(SILENCE))
    return replace(message, blocks=blocks)


def _scrubbed(block: Block) -> Block:
    if isinstance(block, ToolCall):
        return replace(block, name=scrub(block.name), arguments=scrub(block.arguments))
    if isinstance(block, ToolResult):
        return block
    return replace(block, text=scrub(block.text))
