"""A Hugging Face folder that is whole and tiny: a random Llama, a trained tokenizer, our chat template.

Made without torch and in a fraction of a second; the same seed gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from agentrl_mini_swe import prompts

START, END = "<|im_start|>", "<|im_end|>"
WORDS = 600
HIDDEN, HEADS, KV_HEADS, LAYERS, FFN = 64, 4, 2, 2, 128
CONTEXT = 4096
SPREAD = 0.05
CORPUS = [
    "system user assistant tool You call these tools: Answer with one JSON object, name and arguments.\n",
    "\n".join(m["content"] for m in prompts.opening(problem="Make a.py work.", workdir="/testbed", demonstration=True)),
    "```bash\nprintf 'fixed\\n' > state.txt\n```\n```bash\nls -la; git status; git diff; sed -i s/a/b/ main.py\n```\n",
    "exit code 0\n(no output)\nNo bash block found. Answer with one block:\n```bash\n<command>\n```\n",
]


def tiny_model(folder: Path, *, seed: int = 0) -> Path:
    """Write the model into ``folder`` and return it: 2 layers, 4 heads over 2, tied embeddings, float32."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(END)
    vocab = tokenizer.get_vocab_size()
    _write(folder / "config.json", _config(vocab, end))
    _write(folder / "generation_config.json", {"bos_token_id": end, "eos_token_id": end})
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": START, "eos_token": END, "pad_token": END}
    _write(folder / "tokenizer_config.json", {**names, "clean_up_tokenization_spaces": False})
    template = files("agentrl_engine_local").joinpath("chat_template.jinja").read_bytes()
    (folder / "chat_template.jinja").write_bytes(template)
    rng = np.random.default_rng(seed)
    weights = {name: _tensor(rng, name, shape) for name, shape in _shapes(vocab)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class Speller:
    """Texts as ids of a folder's tokenizer: what a scripted engine samples."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.end = self.tokenizer.token_to_id(END)

    def ids(self, text: str) -> list[int]:
        """``text`` and the end of the turn."""
        return [*self.tokenizer.encode(text, add_special_tokens=False).ids, self.end]

    def text(self, ids: list[int]) -> str:
        """What a prompt says, control tokens included."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 2, trainer)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in (START, END)])
    return tokenizer


def _config(vocab: int, end: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
    }


def _shapes(vocab: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (vocab, HIDDEN)
    kv = HIDDEN // HEADS * KV_HEADS
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (HIDDEN,)
        yield f"{at}.self_attn.q_proj.weight", (HIDDEN, HIDDEN)
        yield f"{at}.self_attn.k_proj.weight", (kv, HIDDEN)
        yield f"{at}.self_attn.v_proj.weight", (kv, HIDDEN)
        yield f"{at}.self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        yield f"{at}.post_attention_layernorm.weight", (HIDDEN,)
        yield f"{at}.mlp.gate_proj.weight", (FFN, HIDDEN)
        yield f"{at}.mlp.up_proj.weight", (FFN, HIDDEN)
        yield f"{at}.mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)


def _tensor(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if "norm" in name:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return (rng.standard_normal(shape) * SPREAD).astype(np.float32)


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
