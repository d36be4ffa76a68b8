from __future__ import annotations

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentrl.tokens.template_codec import TemplateCodec

ALL = ("tool", "user", "system")


@pytest.mark.parametrize(
    ("template", "eos", "stable", "appendable", "tools"),
    [
        ("chatml", "<|im_end|>", True, ALL, False),
        ("tools", "<|im_end|>", True, ALL, True),
        ("tools", "<|endoftext|>", True, ALL, True),
        ("forgetful", "<|im_end|>", False, ALL, True),
        ("llama3", "<|eot_id|>", True, ALL, True),
        ("strict", "<|endoftext|>", True, ("user", "system"), False),
        ("endless", "<|endoftext|>", True, (), False),
    ],
)
def test_a_template_is_seen_through_before_any_rollout(codec_for, template, eos, stable, appendable, tools):
    probe = codec_for(template, eos).probe()
    assert (probe.prefix_stable, probe.appendable, probe.tools_round_trip) == (stable, appendable, tools)
    assert probe.content_is_plain
    assert len(probe.notes) == (not stable) + (not tools) + (3 - len(appendable))


def test_a_template_that_drops_reasoning_without_tools_is_found_too(tokenizer_for):
    tokenizer = tokenizer_for("chatml")
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message.content",
        "('<think>' + message.reasoning_content + '</think>' if loop.last and message.reasoning_content else '') + message.content",
    )
    assert not TemplateCodec(tokenizer).probe().prefix_stable


def test_a_template_that_moves_a_hint_is_found(tokenizer_for):
    tokenizer = tokenizer_for("tools")
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message.role + '\\n' + message.content",
        "message.role + '\\n' + message.content + ('/think' if loop.last else '')",
    )
    assert not TemplateCodec(tokenizer).probe().prefix_stable


def test_a_codec_that_lets_content_through_is_found(codec_for, monkeypatch):
    codec = codec_for("chatml")
    monkeypatch.setattr(codec._plain, "text", lambda text: (text, 0))
    probe = codec.probe()
    assert not probe.content_is_plain
    assert "do not train" in " ".join(probe.notes)


def test_a_tokenizer_that_merges_across_the_start_of_a_reply_is_found(trained):
    """GPT-2 cuts two line breaks apart when a word follows: the prompt alone and the prompt in a longer text differ."""
    backend = Tokenizer.from_str(trained.to_str())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = (
        "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\n\n' + m.content + '<|im_end|>' -}}{%- endfor -%}"
        "{{- '<|im_start|>assistant\n\n' -}}"
    )
    assert not TemplateCodec(tokenizer).probe().prefix_stable
