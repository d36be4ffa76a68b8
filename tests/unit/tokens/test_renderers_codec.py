from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from renderers.base import create_renderer
from renderers.configs import config_from_name

from agentrl.errors import TemplateError
from agentrl.tokens.plain import SEAM
from agentrl.tokens.renderers_codec import RenderersCodec, SeamTokenizer
from agentrl.types import Message, Text, Thinking, Tool, ToolCall, ToolResult

LOOK = Tool("look", "Look at a file", {"type": "object", "properties": {"path": {"type": "string"}}})
ASK = Message("user", (Text("Where is the bug?"),))
CALL = Message("assistant", (ToolCall("call_1", "look", {"path": "a.py"}),))
RESULT = Message("tool", (ToolResult("call_1", "line 1"),))
LATE = Message("system", (Text("Ten minutes left."),))
hostile = st.lists(st.sampled_from(["<|im_end|>", "<|im_start|>", "<tool_call>", "</think>", "a", "\n"]), max_size=6)


def hand_written(tokenizer, name: str) -> RenderersCodec:
    config = type(config_from_name(name))(thinking_retention="all")
    return RenderersCodec(tokenizer, lambda t: create_renderer(t, config), name=name)


@pytest.fixture(scope="module")
def qwen(tokenizer) -> RenderersCodec:
    return hand_written(tokenizer, "qwen3")


@pytest.fixture(scope="module")
def glm(tokenizer) -> RenderersCodec:
    return hand_written(tokenizer, "glm-5")


@pytest.fixture(scope="module")
def tokenizer(tokenizer_for):
    return tokenizer_for("forgetful")


def test_it_renders_what_the_models_own_template_renders(qwen, codec_for):
    messages = [Message("system", (Text("Be brief."),)), ASK, CALL, RESULT]
    assert qwen.render(messages, [LOOK]) == codec_for("forgetful").render(messages, [LOOK])


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("new", [[RESULT], [RESULT, ASK], [ASK]])
def test_it_appends_what_the_general_codec_appends(qwen, codec_for, tokenizer, new, closed):
    end = tokenizer.convert_tokens_to_ids("<|im_end|>") if closed else None
    one = qwen.extend([ASK, CALL], new, [LOOK], closed=closed, last_id=end)
    assert one is not None
    assert one == codec_for("forgetful").extend([ASK, CALL], new, [LOOK], closed=closed, last_id=end)


@given(pieces=hostile)
def test_content_never_becomes_a_control_token(qwen, tokenizer, pieces):
    controls = set(tokenizer.added_tokens_decoder)

    def ids(text: str) -> list[int]:
        messages = [ASK, CALL, Message("tool", (ToolResult("call_1", text),)), Message("user", (Text(text),))]
        whole = qwen.render(messages, [Tool("look", text, {})])
        added = qwen.extend(messages[:2], messages[2:], [LOOK], closed=True)
        assert added is not None
        assert (added.neutralised == 0) == (whole.neutralised == 0)
        return [i for i in (*whole.ids, *added.ids) if i in controls]

    assert ids("".join(pieces)) == ids("x")


def test_a_format_that_closes_replies_with_the_next_role_needs_the_last_id(glm, tokenizer):
    """GLM's replies end with the marker of whoever speaks next, or with the end token: nothing is guessed."""
    assert glm.extend([ASK, CALL], [RESULT], [LOOK], closed=True) is None
    spelled = {}
    for stop in ("<|observation|>", "<|endoftext|>"):
        last_id = tokenizer.convert_tokens_to_ids(stop)
        added = glm.extend([ASK, CALL], [RESULT], [LOOK], closed=True, last_id=last_id)
        assert added is not None
        spelled[stop] = tokenizer.decode(list(added.ids), skip_special_tokens=False)
    assert spelled["<|endoftext|>"] == f"<|observation|>{spelled['<|observation|>']}"
    assert spelled["<|observation|>"].startswith("<tool_response>line 1")


@pytest.mark.parametrize(("family", "end"), [("glm-5", "<|user|>"), ("nemotron-3", "<|im_end|>")])
def test_reasoning_that_the_prompt_opened_is_reasoning(tokenizer, family, end):
    codec = hand_written(tokenizer, family)
    assert reply(codec, tokenizer, f"hm</think>Yes.{end}").message.blocks == (Thinking("hm"), Text("Yes."))


def test_a_cut_reply_is_closed_first_also_inside_reasoning(glm, tokenizer):
    cut = Message("assistant", (Thinking("hm"), Text("")))
    added = glm.extend([ASK, cut], [ASK], [LOOK], closed=False)
    assert added is not None
    assert tokenizer.decode(list(added.ids), skip_special_tokens=False).startswith("<|endoftext|><|user|>")


def test_an_answer_inside_the_new_part_is_left_to_a_new_chain(qwen):
    assert qwen.extend([ASK, CALL], [RESULT, CALL, RESULT], [LOOK], closed=True) is None


def test_late_system_messages_are_kept_where_the_format_has_them(qwen, tokenizer):
    added = qwen.extend([ASK, CALL], [LATE], [LOOK], closed=True)
    assert added is not None
    assert "system\nTen minutes left." in tokenizer.decode(list(added.ids), skip_special_tokens=False)


def reply(codec, tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    return codec.parse(ids, [LOOK], lambda: "call_1")


GOOD = '<tool_call>\n{"name": "look", "arguments": {"path": "a.py"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Hello.<|im_end|>", (Text("Hello."),)),
        ("<think>\nhm\n</think>\n\nYes.<|im_end|>", (Thinking("hm"), Text("Yes."))),
        ("<|im_end|>", (Text(""),)),
        (f"{GOOD}<|im_end|>", CALL.blocks),
    ],
)
def test_replies_are_split_into_blocks(qwen, tokenizer, text, blocks):
    assert reply(qwen, tokenizer, text).message.blocks == blocks


@pytest.mark.parametrize(
    "broken",
    ["<tool_call>nonsense</tool_call>", '<tool_call>{"name": "look", "arguments": 3}</tool_call>', "<tool_call>{"],
)
def test_a_malformed_call_stays_visible(qwen, tokenizer, broken):
    parsed = reply(qwen, tokenizer, f"I look.\n{broken}<|im_end|>")
    assert parsed.malformed == 1
    assert all(isinstance(b, Text) for b in parsed.message.blocks)
    assert parsed.message.text.startswith("I look.")
    assert parsed.message.text.endswith(broken)


@pytest.mark.parametrize("family", ["qwen", "glm"])
def test_the_probe_sees_that_the_template_forgets_and_that_appending_works(request, family):
    probe = request.getfixturevalue(family).probe()
    assert not probe.prefix_stable
    assert probe.appendable == ("tool", "user", "system")
    assert probe.tools_round_trip
    assert probe.content_is_plain


def test_a_tokenizer_of_another_family_is_a_typed_error(tokenizer):
    with pytest.raises(TemplateError, match="minimax-m2"):
        hand_written(tokenizer, "minimax-m2")


def test_character_offsets_count_seams(tokenizer):
    text = f"a<{SEAM}|im_end|>b"
    found = SeamTokenizer(tokenizer)(text, add_special_tokens=False, return_offsets_mapping=True)
    spelled = "".join(text[a:b] for a, b in found["offset_mapping"])
    assert spelled == text.replace(SEAM, "")
    assert len(found["input_ids"]) == len(found["offset_mapping"])
