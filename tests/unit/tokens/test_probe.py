from __future__ import annotations

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentrl.tokens.template_codec import TemplateCodec
from agentrl.types import Message, Text

ALL = ("tool", "user", "system")


@pytest.mark.parametrize(
    ("template", "eos", "stable", "appendable", "tools"),
    [
        ("chatml", "<|im_end|>", True, ALL, False),
        ("tools", "<|im_end|>", True, ALL, True),
        ("tools", "<|endoftext|>", True, ALL, True),
        ("forgetful", "<|im_end|>", False, ALL, True),
        ("thinking", "<|im_end|>", True, ALL, True),
        ("llama3", "<|eot_id|>", True, ALL, True),
        ("glm", "<|endoftext|> <|user|> <|observation|>", True, ALL, True),
        ("deepseek", "<｜end▁of▁sentence｜>", True, ALL, True),
        ("mistral", "</s>", False, ALL, True),
        ("mistral_list", "</s>", False, ALL, True),
        ("strict", "<|endoftext|>", True, ("user", "system"), False),
        ("endless", "<|endoftext|>", True, (), False),
    ],
)
def test_a_template_is_seen_through_before_any_rollout(codec_for, template, eos, stable, appendable, tools):
    probe = codec_for(template, *eos.split()).probe()
    assert (probe.prefix_stable, probe.appendable, probe.tools_round_trip) == (stable, appendable, tools)
    assert probe.content_is_plain
    assert len(probe.notes) == (not stable) + (not tools) + (3 - len(appendable))


@pytest.mark.parametrize(
    ("template", "eos", "spelled"),
    [
        ("glm", "<|endoftext|> <|user|> <|observation|>", "<tool_call>look\n{}</tool_call>"),
        (
            "deepseek",
            "<｜end▁of▁sentence｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n[1]\n```<｜tool▁call▁end｜>",
        ),
        ("mistral", "</s>", "[TOOL_CALLS]look[ARGS]{broken"),
        ("mistral_list", "</s>", '[TOOL_CALLS][{"name": "look", "arguments": {}}, {"name": 3}]'),
    ],
)
def test_a_malformed_call_of_each_family_stays_text_and_is_counted(codec_for, tokenizer_for, template, eos, spelled):
    codec, tokenizer = codec_for(template, *eos.split()), tokenizer_for(template)
    parsed = codec.parse(tokenizer.encode("So. " + spelled, add_special_tokens=False), (), lambda: "call_1")
    assert (parsed.message.text, parsed.malformed) == ("So. " + spelled, 1)


def test_glm_takes_the_marker_that_the_model_emitted_and_adds_the_one_that_it_did_not(codec_for, tokenizer_for):
    codec, tokenizer = codec_for("glm", "<|endoftext|>", "<|user|>", "<|observation|>"), tokenizer_for("glm")
    user, observation = tokenizer.convert_tokens_to_ids(["<|user|>", "<|observation|>"])
    history = [Message("user", (Text("a"),)), Message("assistant", (Text("b"),))]
    more = [Message("user", (Text("c"),))]
    emitted = codec.extend(history, more, (), closed=True, last_id=user)
    other = codec.extend(history, more, (), closed=True, last_id=observation)
    assert other.ids == (user, *emitted.ids)
    assert tokenizer.decode(emitted.ids) == "\nc<|assistant|>"


def test_what_the_system_says_late_is_not_lost_by_a_template_that_moves_it_to_the_front(codec_for, tokenizer_for):
    codec, tokenizer = codec_for("deepseek", "<｜end▁of▁sentence｜>"), tokenizer_for("deepseek")
    history = [Message("user", (Text("a"),)), Message("assistant", (Text("b"),))]
    added = codec.extend(history, [Message("system", (Text("Hurry."),))], (), closed=False)
    assert tokenizer.decode(added.ids) == "<｜end▁of▁sentence｜><｜User｜>Hurry.<｜Assistant｜>"


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
