"""What a chat format can and cannot do, found by trying it on made-up conversations before any rollout runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.errors import TemplateError
from agentrl.types import Message, Text, Thinking, Tool, ToolCall, ToolResult

if TYPE_CHECKING:
    from agentrl.tokens.codec import Codec


@dataclass(frozen=True, slots=True)
class Probe:
    """The findings, for ``doctor`` and the run's header.

    ``prefix_stable``: what a longer conversation renders begins with what the shorter one renders, and the codec's
    appended part is exactly the difference. When False the template rewrites its own past: no harm for training here
    (the past is never rendered again), but worth knowing. ``appendable``: the roles that can follow a sampled
    reply without a new chain. ``tools_round_trip``: a rendered tool call parses back into the same call. ``content_is_plain``: control
    tokens spelled in content stay text. ``notes``: what a person should read, one sentence each.
    """

    prefix_stable: bool
    appendable: tuple[str, ...]
    tools_round_trip: bool
    content_is_plain: bool
    notes: tuple[str, ...] = ()


_TOOLS = (Tool("look", "Look at a file", {"type": "object", "properties": {"path": {"type": "string"}}}),)
_ASK = Message("user", (Text("Where is the bug?"),))
_CALL = Message("assistant", (Thinking("Let me see."), ToolCall("call_1", "look", {"path": "a.py"})))
_RESULT = Message("tool", (ToolResult("call_1", "line 1"),))
_SAY = Message("assistant", (Thinking("Clear now."), Text("In line 1.")))
_MORE = Message("user", (Text("And now?"),))
_LATE = Message("system", (Text("Ten minutes left."),))

_NOTES = {
    "prefix": "rendered from scratch, a longer conversation does not begin with the ids of the shorter one (old reasoning "
    "dropped, text moved); here the past is never rendered again, so what is trained is what was sampled",
    "tools": "a tool call does not survive the template: tools need another chat template or renderer",
    "plain": "control tokens in content become control tokens: do not train with this codec",
}


def run_probe(codec: Codec, controls: Mapping[str, int]) -> Probe:
    """Try ``codec`` out. ``controls``: spelling → id of its control tokens."""
    appended = {
        new.role: _extends(codec, reply, new) for reply, new in ((_CALL, _RESULT), (_SAY, _MORE), (_SAY, _LATE))
    }
    findings = {
        "prefix": _keeps_past(codec, [_ASK, _SAY], [_MORE], ())
        and _keeps_past(codec, [_ASK, _CALL, _RESULT], [_SAY, _MORE], _TOOLS)
        and _adds_up(codec, _SAY, _MORE, ())
        and _adds_up(codec, _CALL, _RESULT, _TOOLS),
        "tools": _same_call(codec),
        "plain": _stays_plain(codec, controls),
    }
    notes = [_NOTES[key] for key, good in findings.items() if not good]
    notes += [
        f"no {role} message can follow a reply without a new chain" for role, good in appended.items() if not good
    ]
    roles = tuple(role for role, good in appended.items() if good)
    return Probe(findings["prefix"], roles, findings["tools"], findings["plain"], tuple(notes))


def _render(codec: Codec, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
    """The prompt's ids; none for what the format cannot render."""
    try:
        return codec.render(messages, tools).ids
    except TemplateError:
        return ()


def _extensions(codec: Codec, reply: Message, new: Message, tools: Sequence[Tool]) -> dict[int, tuple[int, ...]]:
    """What is appended behind a reply that ended with each of the stop tokens; empty when nothing can be."""
    ways: dict[int, tuple[int, ...]] = {}
    for stop in codec.stop_token_ids:
        try:
            rendered = codec.extend([_ASK, reply], [new], tools, closed=True, last_id=stop)
        except TemplateError:
            continue
        if rendered is not None:
            ways[stop] = rendered.ids
    return ways


def _extends(codec: Codec, reply: Message, new: Message) -> bool:
    return bool(_extensions(codec, reply, new, _TOOLS if reply is _CALL else ()))


def _sampled_part(codec: Codec, reply: Message, new: Message, tools: Sequence[Tool]) -> tuple[int, ...] | None:
    """The ids that stand for ``reply`` in a full rendering: what is left between prompt and appended part, or None when
    the full rendering is not put together like that."""
    prompt, full = _render(codec, [_ASK], tools), _render(codec, [_ASK, reply, new], tools)
    for stop, added in _extensions(codec, reply, new, tools).items():
        middle = full[len(prompt) : len(full) - len(added)]
        if full == prompt + middle + added and middle[-1:] == (stop,):
            return middle
    return None


def _adds_up(codec: Codec, reply: Message, new: Message, tools: Sequence[Tool]) -> bool:
    """Whether prompt, reply and appended part are the full rendering; true when there is nothing to compare."""
    comparable = _render(codec, [_ASK, reply, new], tools) and _extensions(codec, reply, new, tools)
    return not comparable or _sampled_part(codec, reply, new, tools) is not None


def _keeps_past(codec: Codec, past: Sequence[Message], new: Sequence[Message], tools: Sequence[Tool]) -> bool:
    """Whether a rendering goes on where the shorter one stopped (before its generation prompt); true for what does not
    render."""
    shorter, longer = _render(codec, past, tools), _render(codec, [*past, *new], tools)
    end = max((i + 1 for i, token in enumerate(shorter) if token in codec.stop_token_ids), default=0)
    return not longer or longer[:end] == shorter[:end]


def _same_call(codec: Codec) -> bool:
    middle = _sampled_part(codec, _CALL, _RESULT, _TOOLS)
    if middle is None:
        return False
    parsed = codec.parse(middle, _TOOLS, lambda: "call_1")
    calls = [b for b in parsed.message.blocks if isinstance(b, ToolCall)]
    return parsed.malformed == 0 and calls == [b for b in _CALL.blocks if isinstance(b, ToolCall)]


def _stays_plain(codec: Codec, controls: Mapping[str, int]) -> bool:
    def count(text: str) -> int:
        return sum(i in ids for i in _render(codec, [Message("user", (Text(text),))]))

    ids = set(controls.values())
    return count(" ".join(controls)) == count("x") and count("".join(controls)) == count("x")
