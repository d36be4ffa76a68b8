"""The codec over the ``renderers`` package: hand-written formats of known model families, proven by its authors against
the models' own templates.

It adds three things: content stays plain text (the package would encode control tokens in it), the cost of a turn is that
of the new part (the package wants the whole prefix to build on), and one policy for malformed calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentrl.errors import TemplateError
from agentrl.tokens.chat import Chat, ChatWriter, ToolShelf, call_names, late_system_as_user
from agentrl.tokens.codec import Parsed, Rendered
from agentrl.tokens.plain import SEAM, Plain, control_tokens, encode_pieces
from agentrl.tokens.probe import Probe, run_probe
from agentrl.types import Block, Message, Text, Thinking, Tool, ToolCall

_ASK = {"role": "user", "content": "."}
_LATE = {"role": "system", "content": "."}
_FAILURES = (ValueError, TypeError, KeyError, AttributeError, AssertionError, RuntimeError)


class SeamTokenizer:
    """A tokenizer that cuts text at its seams before encoding; everything else is the real one's."""

    def __init__(self, tokenizer: Any) -> None:
        self._real = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def encode(self, text: str, **options: Any) -> list[int]:
        """Ids of ``text``."""
        return encode_pieces(text, lambda piece: self._real.encode(piece, **options))

    def __call__(self, text: str, **options: Any) -> dict[str, list[Any]]:
        """Ids and, when asked for, character offsets in ``text`` with its seams."""
        merged: dict[str, list[Any]] = {"input_ids": [], "offset_mapping": []}
        start = 0
        for piece in text.split(SEAM):
            part = self._real(piece, **options)
            merged["input_ids"] += part["input_ids"]
            merged["offset_mapping"] += [(a + start, b + start) for a, b in part.get("offset_mapping", ())]
            start += len(piece) + len(SEAM)
        return merged


class RenderersCodec:
    """A renderer made by ``make`` over ``tokenizer``. ``name``: the package's name of it.

    Raises: TemplateError when the tokenizer does not fit the renderer.
    """

    def __init__(self, tokenizer: Any, make: Callable[[Any], Any], *, name: str) -> None:
        self._name = name
        self._controls = control_tokens(tokenizer.added_tokens_decoder)
        self._plain = Plain(self._controls)
        self._shelf = ToolShelf(self._plain)
        self._tokenizer = SeamTokenizer(tokenizer)
        try:
            self._renderer = make(self._tokenizer)
        except _FAILURES as error:
            raise TemplateError(f"the tokenizer does not fit the renderer {name}: {error}") from error
        self._stops = tuple(int(i) for i in self._renderer.get_stop_token_ids())
        self._asked = self._ids([_ASK])
        self._late_system = self._takes_late_system()

    @property
    def name(self) -> str:
        """``renderers:`` and the package's name."""
        return f"renderers:{self._name}"

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a reply."""
        return self._stops

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Rendered:
        """The whole prompt. Raises: TemplateError."""
        writer = ChatWriter(self._plain, self._shelf)
        chat = self._fitted(writer.messages(messages), first=1)
        return Rendered(tuple(self._ids(chat, writer.tools(tools))), writer.neutralised)

    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Tool],
        *,
        closed: bool,
        last_id: int | None = None,
    ) -> Rendered | None:
        """What follows a sampled reply; None for new messages that the renderer only renders from scratch."""
        writer = ChatWriter(self._plain, self._shelf, call_names(history[-1]))
        chat = self._fitted(writer.messages(new), first=0)
        counted, schemas = writer.neutralised, writer.tools(tools)
        if not closed:
            ends: list[tuple[int, ...]] = [()]
        else:
            ends = [(stop,) for stop in (self._stops if last_id is None else (last_id,))]
        ways = {self._behind(end, chat, schemas) for end in ends}
        ids = ways.pop() if len(ways) == 1 else None
        return None if ids is None else Rendered(ids, counted)

    def parse(self, ids: Sequence[int], tools: Sequence[Tool], mint: Callable[[], str]) -> Parsed:
        """The message that ``ids`` spell."""
        schemas = ChatWriter(self._plain, self._shelf).tools(tools)
        found = self._renderer.parse_response(list(ids), tools=schemas, prompt_ids=self._asked)
        thought, text = found.reasoning_content or "", found.content or ""
        good = [c for c in found.tool_calls if _readable(c)]
        bad = [c for c in found.tool_calls if not _readable(c)]
        text += "".join(f"\n{self._spelled(c, ids)}" for c in bad)
        blocks: list[Block] = [Thinking(thought.strip("\n"))] if thought.strip() else []
        blocks += [Text(text)] if text.strip() or not good else []
        blocks += [ToolCall(mint(), c.name, c.arguments) for c in good]
        return Parsed(Message("assistant", tuple(blocks)), len(bad))

    def spell(self, ids: Sequence[int]) -> str:
        """As text, with control tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def probe(self) -> Probe:
        """Try the format out."""
        return run_probe(self, self._controls)

    def _ids(self, chat: Chat, tools: list[dict[str, Any]] | None = None) -> list[int]:
        try:
            return list(self._renderer.render_ids(chat, tools=tools, add_generation_prompt=True))
        except _FAILURES as error:
            roles = ", ".join(m["role"] for m in chat)
            raise TemplateError(f"the renderer {self._name} cannot render the roles {roles}: {error}") from error

    def _behind(self, end: tuple[int, ...], chat: Chat, tools: list[dict[str, Any]] | None) -> tuple[int, ...] | None:
        """The ids that the renderer puts behind a short reply which ends with ``end``."""
        reply = [*self._said(), *end]
        try:
            bridged = self._renderer.bridge_to_next_turn(self._asked, reply, chat, tools=tools)
        except _FAILURES as error:
            raise TemplateError(f"the renderer {self._name} cannot append: {error}") from error
        before = [*self._asked, *reply]
        if bridged is None or list(bridged.token_ids[: len(before)]) != before:
            return None
        return tuple(bridged.token_ids[len(before) :])

    def _said(self) -> list[int]:
        """A reply whose reasoning, if the prompt opened any, is over."""
        closing = self._controls.get("</think>")
        return [*([] if closing is None else [closing]), *self._tokenizer.encode(".", add_special_tokens=False)]

    def _takes_late_system(self) -> bool:
        try:
            self._ids([_ASK, {"role": "assistant", "content": "."}, _LATE])
            return self._behind(self._stops[:1], [_LATE], None) is not None
        except TemplateError:
            return False

    def _fitted(self, chat: Chat, *, first: int) -> Chat:
        return chat if self._late_system else late_system_as_user(chat, first=first)

    def _spelled(self, call: Any, ids: Sequence[int]) -> str:
        if call.token_span is None:
            return str(call.raw)
        return str(self._tokenizer.decode(list(ids[slice(*call.token_span)]), skip_special_tokens=False))


def _readable(call: Any) -> bool:
    """A call with a name and an object of arguments, of a known tool or not."""
    return call.status in ("ok", "unknown_tool") and bool(call.name) and isinstance(call.arguments, dict)
