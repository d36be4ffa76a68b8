"""A small real tokenizer and small real chat templates: no model is needed to test exact tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentrl.tokens.template_codec import TemplateCodec

TEMPLATES = Path(__file__).parent / "templates"
SPECIAL = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|python_tag|>"),
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
    *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁sep｜>"),
    *(f"<｜tool▁{what}▁{edge}｜>" for what in ("calls", "call", "outputs", "output") for edge in ("begin", "end")),
    *("<s>", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
]
GLM_TAGS = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", *GLM_TAGS]
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "The quick brown fox looks at line 12 of main.py and finds the bug.\n",
    '{"name": "bash", "arguments": {"command": "ls -la /tmp"}}\n\n',
    "def add(a, b):\n    return a + b\n\n\nassert add(1, 2) == 3\n",
    "system user assistant tool ipython # Tools You are a helpful assistant. <tools> </tools>\n",
]


@pytest.fixture(scope="session")
def trained() -> Tokenizer:
    """A byte-level BPE with the control tokens of several model families."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytewise])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in TAGS])
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer_for(trained: Tokenizer) -> Callable[..., Any]:
    """The tokenizer with a chat template of ``templates/``."""

    def make(template: str, eos: str = "<|im_end|>") -> Any:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained, eos_token=eos)
        tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
        return tokenizer

    return make


@pytest.fixture(scope="session")
def codec_for(tokenizer_for: Callable[..., Any]) -> Callable[..., TemplateCodec]:
    """The general codec over a template of ``templates/``; ``ends``: what else ends a reply."""

    def make(template: str, eos: str = "<|im_end|>", *ends: str) -> TemplateCodec:
        tokenizer = tokenizer_for(template, eos)
        return TemplateCodec(tokenizer, stop_ids=tokenizer.convert_tokens_to_ids(list(ends)))

    return make


@pytest.fixture
def model_dir(tmp_path: Path, tokenizer_for: Callable[..., Any]) -> Callable[..., Path]:
    """A model's folder: tokenizer, template and what ``config.json`` says."""

    def make(template: str, folder: str = "model", **config: Any) -> Path:
        path = tmp_path / folder
        tokenizer_for(template).save_pretrained(path)
        (path / "config.json").write_text(json.dumps(config))
        return path

    return make
