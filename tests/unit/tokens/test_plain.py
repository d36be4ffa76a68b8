from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.tokens.plain import MARK, SEAM, Plain, control_tokens, encode_pieces, well_formed

CONTROLS = ("<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "[INST]")
plain = Plain(CONTROLS)
pieces = st.lists(
    st.sampled_from([*CONTROLS, "<|im_", "end|>", "<", "<|", ">", "x", " ", "\n", "é", "[IN", SEAM, MARK])
)
texts = pieces.map("".join)


@given(texts)
def test_no_piece_of_content_spells_a_control_token_and_nothing_is_lost(text):
    cut, count = plain.text(text)
    assert not any(control in piece for piece in cut.split(SEAM) for control in CONTROLS)
    assert cut.replace(SEAM, "") == text.replace(SEAM, "\ufffd").replace(MARK, "\ufffd")
    assert (count > 0) == any(control in text for control in CONTROLS)


@given(texts, st.sampled_from(CONTROLS), st.data())
def test_content_completes_no_spelling_that_the_template_began(text, control, data):
    at = data.draw(st.integers(2, len(control) - 2))
    for rendered in (
        control[:at] + plain.text(control[at:] + text)[0],
        plain.text(text + control[:at])[0] + control[at:],
    ):
        found = sum(piece.count(control) for piece in rendered.split(SEAM))
        assert found == 0


def test_every_spelling_counts_once():
    assert plain.text("a<|im_end|>b<|im_end|><tool_call>")[1] == 3


def test_ordinary_text_is_left_alone():
    text = "if a < b | c > d: list[int]</div><|"[:-2]
    assert plain.text(text) == (text, 0)


def test_values_are_made_plain_in_keys_and_strings_at_any_depth():
    value = {"<tool_call>": [1, {"a": "[INST]"}, None, True, "ok"]}
    cut, count = plain.value(value)
    assert count == 2
    assert cut == {f"<{SEAM}tool_call>": [1, {"a": f"[{SEAM}INST]"}, None, True, "ok"]}


def test_pieces_are_encoded_apart():
    seen = []
    ids = encode_pieces(f"ab{SEAM}c{SEAM}", lambda piece: seen.append(piece) or [len(piece)])
    assert (seen, ids) == (["ab", "c"], [2, 1])


def test_added_words_of_a_vocabulary_are_no_control_tokens(trained):
    from tokenizers import AddedToken

    added = {
        1: AddedToken("<|im_end|>", special=True),
        2: AddedToken("    ", special=False),
        3: AddedToken("<think>", special=False),
        4: AddedToken("hello", special=True),
        5: AddedToken("<", special=True),
    }
    assert control_tokens(added) == {"<|im_end|>": 1, "<think>": 3, "hello": 4}


@pytest.mark.parametrize(
    ("text", "expected"), [("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "😀"), ("é", "é"), ("\udc00", "\ufffd")]
)
def test_lone_surrogates_are_replaced_and_pairs_joined(text, expected):
    assert well_formed(text) == expected


def test_without_control_tokens_nothing_is_cut():
    assert Plain(()).text("<|im_end|>") == ("<|im_end|>", 0)
