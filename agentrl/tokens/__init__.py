"""Exact tokens: codecs (messages to ids and back), the forest of a rollout's turns, and samples for the trainer.

Importing this package starts no tokenizer library; :func:`load_codec` does.
"""

from __future__ import annotations

from pathlib import Path

from agentrl.tokens.codec import Codec


def load_codec(model_dir: Path, *, renderer: str = "auto") -> Codec:
    """The codec of the model in ``model_dir``. ``renderer``: ``auto`` (a hand-written format of the ``renderers`` package
    where that knows the model, else the model's own chat template), ``template``, or a renderer's name.

    Raises: SettingsError for an unknown renderer or a folder without tokenizer, TemplateError when the model has no usable
    chat template.
    """
    from agentrl.tokens.loading import load

    return load(model_dir, renderer)
