"""The codec for any chat template: it renders text with the model's own template and reads replies by a table of formats.

To append to a sampled reply it renders a small conversation in which a mark stands for that reply, finds the stop token
behind the mark, and takes what follows. The history is never rendered again, so a template that rewrites its own past does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jinja2

from agentrl.errors import TemplateError
from agentrl.tokens import chat as chats
from agentrl.tokens.chat import Chat, ChatWriter, Shelved, ToolShelf
from agentrl.tokens.codec import Parsed, Rendered
from agentrl.tokens.plain import MARK, Plain, control_tokens, encode_pieces, encoder_of
from agentrl.tokens.probe import Probe, run_probe
from agentrl.tokens.toolcalls import Call, format_of
from agentrl.types import Block, Message, Text, Thinking, Tool, ToolCall

_ASK: Mapping[str, Any] = {"role": "user", "content": "."}
_REPLY: Mapping[str, Any] = {"role": "assistant", "content": MARK}
_NEXT = "what comes next"
_OPEN, _CLOSE = "<think>", "</think>"


class TemplateCodec:
    """A tokenizer of ``transformers`` with its chat template. ``stop_ids``: what else ends a reply, besides the
    tokenizer's own end token (``generation_config.json`` knows).

    Raises: TemplateError when there is no template, or it renders not even one question.
    """

    def __init__(self, tokenizer: Any, *, stop_ids: Sequence[int] = (), name: str = "template") -> None:
        if not tokenizer.chat_template:
            raise TemplateError("the model has no chat template: put a chat_template.jinja into its folder")
        self._tokenizer = tokenizer
        self._name = name
        self._controls = control_tokens(tokenizer.added_tokens_decoder)
        self._plain = Plain(self._controls)
        self._shelf = ToolShelf(self._plain)
        self._encoder = encoder_of(tokenizer)
        self._format = format_of(str(tokenizer.chat_template))
        ends = {tokenizer.eos_token_id, *stop_ids} - {None}
        self._stops = {spelling: i for spelling, i in self._controls.items() if i in ends}
        self._add_closer()
        opened = self._text([dict(_ASK)]).rstrip()
        self._thinks_at_once = opened.endswith(_OPEN)
        self._ends_text = self._closes(_REPLY)
        self._ends_calls = self._closes(_stand_in(Message("assistant", (ToolCall("call_1", "x", {}),))))
        late = self._tried([_ASK, _REPLY, {"role": "system", "content": _NEXT}])
        # Some templates move it to the front, and others open it with a marker that no reply ends with.
        self._late_system = _NEXT in (self._behind_mark(late) or "")
        self._users_apart = _NEXT in self._tried([_ASK, {"role": "user", "content": _NEXT}])

    @property
    def name(self) -> str:
        """``template``, or what the caller chose."""
        return self._name

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a reply."""
        return tuple(sorted(self._stops.values()))

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Rendered:
        """The whole prompt. Raises: TemplateError."""
        writer = ChatWriter(self._plain, self._shelf)
        text = self._text(self._fitted(writer.messages(messages)), writer.tools(tools))
        return Rendered(tuple(self._encode(text)), writer.neutralised)

    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Tool],
        *,
        closed: bool,
        last_id: int | None = None,
    ) -> Rendered | None:
        """What follows a sampled reply; None when the template puts no stop token behind replies of this kind."""
        reply = history[-1]
        writer = ChatWriter(self._plain, self._shelf, chats.call_names(reply))
        behind = self._fitted(writer.messages(new), first=0)
        tail = self._tail([dict(_ASK), _stand_in(reply), *behind], self._shelf.find(tools))
        ends = self._ends_calls if chats.call_names(reply) else self._ends_text
        if tail is None or not ends:
            return None
        ids = self._encode(tail)
        emitted = closed and last_id in (None, ids[0])
        return Rendered(tuple(ids[1:] if emitted else ids), writer.neutralised)

    def parse(self, ids: Sequence[int], tools: Sequence[Tool], mint: Callable[[], str]) -> Parsed:
        """The message that ``ids`` spell."""
        stops, end = set(self._stops.values()), len(ids)
        while end and ids[end - 1] in stops:
            end -= 1
        text = self._tokenizer.decode(list(ids[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        thought, text = self._thought(text)
        parts, malformed = self._format.split(text, tools) if self._format else ([text], 0)
        blocks: list[Block] = [Thinking(thought)] if thought else []
        blocks += _blocks(parts, mint)
        if not any(isinstance(b, Text | ToolCall) for b in blocks):
            blocks.append(Text(""))
        return Parsed(Message("assistant", tuple(blocks)), malformed)

    def spell(self, ids: Sequence[int]) -> str:
        """As text, with control tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def probe(self) -> Probe:
        """Try the template out."""
        return run_probe(self, self._controls)

    def _thought(self, text: str) -> tuple[str, str]:
        """Reasoning and the rest. Reasoning that never ends (the reply was cut) is all there is."""
        head, opened, body = text.partition(_OPEN)
        if opened and not head.strip():
            thought, _, rest = body.partition(_CLOSE)
        elif self._thinks_at_once:
            thought, _, rest = text.partition(_CLOSE)
        else:
            return "", text
        return thought.strip("\n"), rest.lstrip("\n")

    def _text(self, chat: Chat, tools: list[dict[str, Any]] | None = None) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(chat, tools=tools, tokenize=False, add_generation_prompt=True)
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            roles = ", ".join(m["role"] for m in chat)
            raise TemplateError(f"the chat template cannot render the roles {roles}: {error}") from error

    def _tail(self, chat: Chat, shelved: Shelved) -> str | None:
        """What the template puts behind the mark in ``chat``. Tools stand far before it in nearly all templates; where one
        look shows that, they are left out: to render twenty of them costs more than all the rest of a turn."""
        shape = tuple((m["role"], "tool_calls" in m) for m in chat)
        matter = shelved.matter.get(shape)
        if matter is False:
            return self._behind_mark(self._text(chat))
        tail = self._behind_mark(self._text(chat, shelved.schemas))
        if matter is None:
            shelved.matter[shape] = tail != self._behind_mark(self._tried(chat))
        return tail

    def _encode(self, text: str) -> list[int]:
        return encode_pieces(text, self._encoder)

    def _fitted(self, chat: Chat, *, first: int = 1) -> Chat:
        if not self._late_system:
            chat = chats.late_system_as_user(chat, first=first)
        return chat if self._users_apart else chats.users_joined(chat)

    def _tried(self, chat: Sequence[Mapping[str, Any]]) -> str:
        """The rendered text; nothing for what the template refuses."""
        try:
            return self._text([dict(m) for m in chat])
        except TemplateError:
            return ""

    def _add_closer(self) -> None:
        """Take the control token that the template puts right behind a reply as a stop token."""
        text = self._tried([_ASK, _REPLY, _ASK])
        rest = text[text.rfind(MARK) + len(MARK) :].lstrip() if MARK in text else ""
        closer = next((s for s in self._controls if rest.startswith(s)), None)
        if closer is not None:
            self._stops[closer] = self._controls[closer]

    def _closes(self, reply: Mapping[str, Any]) -> bool:
        """Whether the template puts a stop token between a reply and what follows it."""
        for role in ("tool", "user"):
            text = self._tried([_ASK, reply, {"role": role, "content": _NEXT, "tool_call_id": "call_1"}])
            tail = self._behind_mark(text)
            if tail is not None and _NEXT in tail:
                return True
        return False

    def _behind_mark(self, text: str) -> str | None:
        """The text from the first stop token behind the mark on; None when something else comes first."""
        mark = text.rfind(MARK)
        found = [at for at in (text.find(stop, mark) for stop in self._stops) if at >= 0]
        return text[min(found) :] if mark >= 0 and found else None


def _stand_in(reply: Message) -> dict[str, Any]:
    """A reply of the same shape as ``reply``: its calls by id and name, marks for everything that it said."""
    entry = dict(_REPLY)
    calls = [b for b in reply.blocks if isinstance(b, ToolCall)]
    if calls:
        entry["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": {"x": MARK}}} for c in calls
        ]
    return entry


def _blocks(parts: Sequence[str | Call], mint: Callable[[], str]) -> Iterator[Block]:
    """Texts beside calls lose the white space that only separates; a reply without calls is kept to the letter."""
    alone = len(parts) == 1
    for part in parts:
        if isinstance(part, Call):
            yield ToolCall(mint(), part.name, part.arguments)
        elif part and (alone or part.strip()):
            yield Text(part if alone else part.strip())
