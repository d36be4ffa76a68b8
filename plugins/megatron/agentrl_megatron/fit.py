"""Whether a model can be trained, and split as asked; found out from its config before any process starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl.api import TrainerError
from agentrl_megatron.job import Layout

_SPLIT_BY_TP = ("num_attention_heads", "num_key_value_heads", "vocab_size", "intermediate_size")


def check_model(model_dir: Path, layout: Layout) -> None:
    """Raises: TrainerError with all that stands in the way."""
    path = model_dir / "config.json"
    if not path.is_file():
        raise TrainerError(f"there is no HF model in {model_dir}: config.json is missing")
    problems = list(_problems(json.loads(path.read_text()), layout))
    if problems:
        raise TrainerError(f"the model in {model_dir} cannot be trained like this: {'; '.join(problems)}")


def _problems(config: dict[str, Any], layout: Layout) -> Iterator[str]:
    for name in _SPLIT_BY_TP:
        if config.get(name, 0) % layout.tp:
            yield f"AGENTRL_TP={layout.tp} does not divide its {name} of {config[name]}"
    if config["num_hidden_layers"] % layout.pp:
        yield f"AGENTRL_PP={layout.pp} does not divide its {config['num_hidden_layers']} layers"
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        yield f"its rotary embeddings are of type {kind!r}, and only 'default' is known"
