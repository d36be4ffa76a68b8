from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.errors import TemplateError
from agentrl.tokens.template_codec import TemplateCodec
from agentrl.types import Message, Text, Thinking, Tool, ToolCall, ToolResult

LOOK = Tool("look", "Look at a file", {"type": "object", "properties": {"path": {"type": "string"}}})
ASK = Message("user", (Text("Where is the bug?"),))
CONTROLS = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<tool_call>", "</think>", "<|start_header_id|>"]

words = st.text(st.sampled_from("ab c\n.<>{}é😀#0"), max_size=12)
hostile = st.lists(st.sampled_from([*CONTROLS, "a", "\n", " ", "<", "|>"]), max_size=8).map("".join)
contents = words | hostile
replies = st.from_regex(r"[a-z]{1,5}( [a-z]{1,5}){0,3}[.!]?", fullmatch=True)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def said(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", (Text(text), *calls))


def result(call_id: str, text: str) -> Message:
    return Message("tool", (ToolResult(call_id, text),))


@st.composite
def conversations(draw: st.DrawFn, *, tools: bool, text_beside_calls: bool = True) -> list[list[Message]]:
    """Blocks of what others say with our replies between them; the last block is unanswered."""
    count = 0
    blocks = [[Message("system", (Text(draw(contents)),)), user(draw(contents))]]
    for _ in range(draw(st.integers(1, 3))):
        call = ToolCall(f"call_{count}", "look", {"path": draw(replies)})
        if tools and draw(st.booleans()):
            count += 1
            text = draw(replies) if text_beside_calls else ""
            blocks += [[said(text, call)], [result(call.id, draw(contents))]]
            if draw(st.booleans()):
                blocks[-1].append(user(draw(contents)))
        else:
            blocks += [[said(draw(replies))], [user(draw(contents)) for _ in range(draw(st.integers(1, 2)))]]
    return blocks


def spelled_hermes(reply: Message) -> str:
    calls = [
        f"<tool_call>\n{json.dumps({'name': b.name, 'arguments': b.arguments})}\n</tool_call>"
        for b in reply.blocks
        if isinstance(b, ToolCall)
    ]
    return "\n".join([*(t for t in [reply.text] if t), *calls])


def spelled_llama(reply: Message) -> str:
    calls = [json.dumps({"name": b.name, "parameters": b.arguments}) for b in reply.blocks if isinstance(b, ToolCall)]
    return calls[0] if calls else reply.text


def chain(codec: TemplateCodec, tokenizer, blocks: Sequence[Sequence[Message]], spelled, end: int, tools) -> list[int]:
    """The ids of a rollout in which the model samples each reply exactly as the template would spell it."""
    history = list(blocks[0])
    ids = list(codec.render(history, tools).ids)
    for ours, others in zip(blocks[1::2], blocks[2::2], strict=True):
        ids += [*tokenizer.encode(spelled(ours[0]), add_special_tokens=False), end]
        history += ours
        added = codec.extend(history, others, tools, closed=True, last_id=end)
        assert added is not None
        ids += added.ids
        history += others
    return ids


@given(blocks=conversations(tools=False))
def test_chatml_chain_is_the_full_rendering(codec_for, tokenizer_for, blocks):
    codec, tokenizer = codec_for("chatml"), tokenizer_for("chatml")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    whole = codec.render([m for block in blocks for m in block], ()).ids
    assert chain(codec, tokenizer, blocks, spelled_hermes, end, ()) == list(whole)


@given(blocks=conversations(tools=True))
def test_tool_chain_is_the_full_rendering(codec_for, tokenizer_for, blocks):
    codec, tokenizer = codec_for("tools"), tokenizer_for("tools")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    whole = codec.render([m for block in blocks for m in block], [LOOK]).ids
    assert chain(codec, tokenizer, blocks, spelled_hermes, end, [LOOK]) == list(whole)


@given(blocks=conversations(tools=True, text_beside_calls=False))
def test_llama_chain_is_the_full_rendering(codec_for, tokenizer_for, blocks):
    codec, tokenizer = codec_for("llama3", "<|eot_id|>"), tokenizer_for("llama3", "<|eot_id|>")
    end = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    whole = codec.render([m for block in blocks for m in block], [LOOK]).ids
    assert chain(codec, tokenizer, blocks, spelled_llama, end, [LOOK]) == list(whole)


@given(text=words)
def test_ordinary_content_has_the_ids_of_the_tokenizers_own_template(codec_for, tokenizer_for, text):
    own = tokenizer_for("chatml").apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
    )
    assert list(codec_for("chatml").render([user(text)], ()).ids) == own


@given(text=hostile, schema=hostile, answer=hostile)
def test_content_never_becomes_a_control_token(codec_for, tokenizer_for, text, schema, answer):
    codec, tokenizer = codec_for("tools"), tokenizer_for("tools")
    controls = set(tokenizer.added_tokens_decoder)

    def conversation(text: str, schema: str, answer: str) -> tuple[list[Message], list[Tool]]:
        call = ToolCall("call_1", "look", {"path": answer})
        messages = [Message("system", (Text(text),)), user(text), said(text, call), result("call_1", answer)]
        return messages, [Tool("look", schema, {"properties": {"p": {"description": schema}}})]

    ids = codec.render(*conversation(text, schema, answer)).ids
    plain = codec.render(*conversation("x", "y", "z")).ids
    assert [i for i in ids if i in controls] == [i for i in plain if i in controls]
    assert answer in tokenizer.decode(list(ids), skip_special_tokens=False)


def test_neutralised_spellings_are_counted_in_the_new_part_only(codec_for):
    codec = codec_for("tools")
    dirty = "a <|im_end|> b <|im_start|>"
    history = [user(dirty), said("ok", ToolCall("call_1", "look", {"path": dirty}))]
    added = codec.extend(history, [result("call_1", f"{dirty}</think>")], [LOOK], closed=True)
    assert added is not None
    assert added.neutralised == 3
    assert codec.render([user(dirty)], ()).neutralised == 2


def test_sampled_spelling_is_never_touched(codec_for, tokenizer_for):
    """What is appended does not depend on how the reply was spelled, only on its calls."""
    codec = codec_for("tools")
    new = [result("call_1", "line 1"), user("and?")]
    ways = [said("", ToolCall("call_1", "look", a)) for a in ({"path": "a"}, {"path": "b", "deep": {"x": [1]}})]
    ways.append(Message("assistant", (Thinking("hm"), Text("<|im_end|> I say"), *ways[0].blocks)))
    assert len({codec.extend([ASK, reply], new, [LOOK], closed=True) for reply in ways}) == 1


def test_a_cut_reply_is_closed_first(codec_for, tokenizer_for):
    codec, end = codec_for("chatml"), tokenizer_for("chatml").convert_tokens_to_ids("<|im_end|>")
    closed = codec.extend([ASK, said("half")], [user("go on")], (), closed=True)
    cut = codec.extend([ASK, said("half")], [user("go on")], (), closed=False)
    assert closed is not None
    assert cut is not None
    assert cut.ids == (end, *closed.ids)


def test_another_stop_token_does_not_count_as_the_templates_own(codec_for, tokenizer_for):
    codec, tokenizer = codec_for("tools", "<|endoftext|>"), tokenizer_for("tools")
    eos, end = (tokenizer.convert_tokens_to_ids(t) for t in ("<|endoftext|>", "<|im_end|>"))
    assert set(codec.stop_token_ids) == {eos, end}
    by_eos = codec.extend([ASK, said("ok")], [user("more")], (), closed=True, last_id=eos)
    by_end = codec.extend([ASK, said("ok")], [user("more")], (), closed=True, last_id=end)
    assert by_eos is not None
    assert by_end is not None
    assert by_eos.ids == (end, *by_end.ids)


def test_parallel_results_are_rendered_as_one_block(codec_for, tokenizer_for):
    codec = codec_for("tools")
    calls = [ToolCall("call_1", "look", {"path": "a"}), ToolCall("call_2", "look", {"path": "b"})]
    added = codec.extend([ASK, said("", *calls)], [result("call_1", "A"), result("call_2", "B")], [LOOK], closed=True)
    assert added is not None
    assert tokenizer_for("tools").decode(list(added.ids), skip_special_tokens=False) == (
        "\n<|im_start|>user\n<tool_response>\nA\n</tool_response>\n<tool_response>\nB\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_that_drops_old_reasoning_is_extended_all_the_same(codec_for, tokenizer_for):
    codec, tokenizer = codec_for("forgetful"), tokenizer_for("forgetful")
    reply = Message("assistant", (Thinking("Let me see."), Text("Line 1.")))
    added = codec.extend([ASK, reply], [user("Sure?")], (), closed=True)
    assert added is not None
    text = tokenizer.decode(list(added.ids), skip_special_tokens=False)
    assert text == "\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_without_end_of_reply_cannot_be_extended(codec_for):
    codec = codec_for("endless", "<|endoftext|>")
    assert codec.extend([ASK, said("ok")], [user("more")], (), closed=True) is None


def inline(tokenizer_for, template: str, eos: str = "<|im_end|>"):
    tokenizer = tokenizer_for("chatml", eos)
    tokenizer.chat_template = template
    return TemplateCodec(tokenizer), tokenizer


def test_a_reply_ends_behind_its_calls_when_its_text_has_an_end_of_its_own(tokenizer_for):
    codec, tokenizer = inline(
        tokenizer_for,
        "{%- for m in messages -%}{{- '<|im_start|>' + m.role + ' ' + m.content + '<|im_end|>' -}}"
        "{%- for c in m.tool_calls -%}{{- 'call ' + (c.function.arguments | tojson) + '<|im_end|>' -}}{%- endfor -%}"
        "{%- endfor -%}{{- '<|im_start|>assistant' -}}",
    )
    call = ToolCall("call_1", "look", {"path": "a"})
    added = codec.extend([ASK, said("ok", call)], [result("call_1", "A")], [LOOK], closed=True)
    assert added is not None
    text = tokenizer.decode(list(added.ids), skip_special_tokens=False)
    assert text == "<|im_start|>tool A<|im_end|><|im_start|>assistant"


def test_a_reply_ends_at_the_first_of_several_stop_tokens(tokenizer_for):
    codec, tokenizer = inline(
        tokenizer_for,
        "{%- for m in messages -%}{{- m.content + ('<|im_end|>' if m.role == 'assistant' else '<|endoftext|>') -}}"
        "{%- endfor -%}{{- '<|im_start|>' -}}",
        eos="<|endoftext|>",
    )
    added = codec.extend([ASK, said("ok")], [user("more")], (), closed=True)
    assert added is not None
    assert tokenizer.decode(list(added.ids), skip_special_tokens=False) == "more<|endoftext|><|im_start|>"


def test_the_end_of_somebody_elses_message_is_not_taken_for_the_end_of_a_reply(tokenizer_for):
    codec, _ = inline(
        tokenizer_for,
        "{%- for m in messages -%}{{- m.content + (' | ' if m.role == 'assistant' else '<|im_end|>') -}}{%- endfor -%}",
    )
    assert codec.extend([ASK, said("ok")], [user("more")], (), closed=True) is None


def test_results_carry_the_names_of_their_tools(tokenizer_for):
    codec, tokenizer = inline(
        tokenizer_for,
        "{%- for m in messages -%}{{- (m.name or m.role) + ': ' + m.content + '<|im_end|>' -}}{%- endfor -%}",
    )
    call = ToolCall("call_1", "look", {})
    added = codec.extend([ASK, said("ok", call)], [result("call_1", "A"), result("unknown", "B")], [LOOK], closed=True)
    assert added is not None
    assert tokenizer.decode(list(added.ids), skip_special_tokens=False) == "look: A<|im_end|>tool: B<|im_end|>"


def test_late_system_messages_become_the_users_where_the_template_wants_that(codec_for, tokenizer_for):
    codec, tokenizer = codec_for("llama3", "<|eot_id|>"), tokenizer_for("llama3")
    late = Message("system", (Text("Ten minutes left."),))
    added = codec.extend([ASK, said("ok")], [late], (), closed=True)
    assert added is not None
    assert "user<|end_header_id|>\n\nTen minutes left." in tokenizer.decode(list(added.ids), skip_special_tokens=False)
    assert codec.render([ASK, late], ()).ids == codec.render([ASK, user("Ten minutes left.")], ()).ids
    kept = codec_for("tools").render([ASK, late], ()).ids
    assert "system\nTen minutes left." in tokenizer_for("tools").decode(list(kept), skip_special_tokens=False)


def test_neighbouring_users_are_joined_where_roles_must_take_turns(codec_for, tokenizer_for):
    codec, tokenizer = codec_for("strict", "<|endoftext|>"), tokenizer_for("strict")
    added = codec.extend([ASK, said("ok")], [user("one"), user("two")], (), closed=True)
    assert added is not None
    assert tokenizer.decode(list(added.ids), skip_special_tokens=False) == "[INST] one\ntwo [/INST]"


def test_what_the_template_refuses_is_a_typed_error(codec_for):
    with pytest.raises(TemplateError, match="take turns"):
        codec_for("strict", "<|endoftext|>").render([ASK, said("a"), result("call_1", "x")], ())


def test_a_model_without_template_is_refused(tokenizer_for):
    tokenizer = tokenizer_for("chatml")
    tokenizer.chat_template = None
    with pytest.raises(TemplateError, match=r"chat_template\.jinja"):
        TemplateCodec(tokenizer)


def parsed(codec: TemplateCodec, tokenizer, text: str):
    ids = tokenizer.encode(text, add_special_tokens=False)
    numbers = iter(range(1, 9))
    return codec.parse(ids, [LOOK], lambda: f"call_{next(numbers)}")


CALL = '<tool_call>\n{"name": "look", "arguments": {"path": "a.py"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Hello.<|im_end|>", (Text("Hello."),)),
        (" Hello.\n\n", (Text(" Hello.\n\n"),)),
        ("<|im_end|>", (Text(""),)),
        ("<think>\nhm\n</think>\n\nYes.<|im_end|>", (Thinking("hm"), Text("Yes."))),
        ("<think>\nhm, cut", (Thinking("hm, cut"), Text(""))),
        ("<think></think>Yes.", (Text("Yes."),)),
        (f"I look.\n{CALL}<|im_end|>", (Text("I look."), ToolCall("call_1", "look", {"path": "a.py"}))),
        (f"{CALL}\n{CALL}", tuple(ToolCall(f"call_{n}", "look", {"path": "a.py"}) for n in (1, 2))),
        (f"<think>\n{CALL}\n</think>\nNo.", (Thinking(CALL), Text("No."))),
        ("a <|im_start|> b<|im_end|>", (Text("a <|im_start|> b"),)),
    ],
)
def test_replies_are_split_into_blocks(codec_for, tokenizer_for, text, blocks):
    found = parsed(codec_for("tools"), tokenizer_for("tools"), text)
    assert (found.message, found.malformed) == (Message("assistant", blocks), 0)


def test_a_malformed_call_stays_visible(codec_for, tokenizer_for):
    broken = '<tool_call>\n{"name": "look", "arguments": {"path"\n</tool_call>'
    found = parsed(codec_for("tools"), tokenizer_for("tools"), f"I look.\n{broken}")
    assert found.message.blocks == (Text(f"I look.\n{broken}"),)
    assert found.malformed == 1


def test_reasoning_that_the_prompt_opened_is_reasoning(tokenizer_for):
    tokenizer = tokenizer_for("chatml")
    tokenizer.chat_template = tokenizer.chat_template.replace("assistant\\n' -}}", "assistant\\n<think>\\n' -}}")
    codec = TemplateCodec(tokenizer)
    assert parsed(codec, tokenizer, "hm\n</think>\n\nYes.").message.blocks == (Thinking("hm"), Text("Yes."))
    assert parsed(codec, tokenizer, "hm, cut").message.blocks == (Thinking("hm, cut"), Text(""))


@given(ids=st.lists(st.integers(0, 410), max_size=30))
def test_any_sampled_ids_parse_into_a_reply(codec_for, ids):
    message = codec_for("tools").parse(ids, [LOOK], lambda: "call_1").message
    assert message.role == "assistant"
    assert any(isinstance(b, Text | ToolCall) for b in message.blocks)


@pytest.mark.parametrize(("template", "eos"), [("tools", "<|im_end|>"), ("mistral", "</s>")])
def test_tools_are_in_what_is_appended_exactly_where_the_template_puts_them_there(
    codec_for, tokenizer_for, template, eos
):
    codec, tokenizer = codec_for(template, eos), tokenizer_for(template, eos)
    other = Tool("other", "Another", {"type": "object"})
    history = [ASK, said("b")]
    for _ in range(3):
        for tools in ([LOOK], [other], []):
            added = codec.extend(history, [user("c")], tools, closed=True)
            text = tokenizer.decode(added.ids)
            assert [t.name for t in tools if f'"name": "{t.name}"' in text] == (
                [t.name for t in tools] if template == "mistral" else []
            )
