"""Which codec a model gets: a hand-written renderer when its family is known and the template agrees, else its own template."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl.errors import SettingsError, TemplateError
from agentrl.tokens.codec import Codec
from agentrl.tokens.renderers_codec import RenderersCodec
from agentrl.tokens.template_codec import TemplateCodec
from agentrl.types import Message, Text, Tool, ToolCall, ToolResult

_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")


def load(model_dir: Path, renderer: str) -> Codec:
    """See :func:`agentrl.tokens.load_codec`."""
    tokenizer = _tokenizer(model_dir)
    wanted = renderer.strip().lower().replace("_", "-").removeprefix("renderers:")
    if wanted == "auto":
        return _automatic(model_dir, tokenizer)
    if wanted == "template":
        return _template(model_dir, tokenizer)
    known = _renderer_names()
    if wanted not in known:
        close = difflib.get_close_matches(wanted, ["auto", "template", *known], n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: auto, template, {', '.join(known)}"
        raise SettingsError(f"unknown renderer {renderer!r}; {hint}")
    return _hand_written(tokenizer, wanted)


def family_of(model_dir: Path) -> str | None:
    """The renderer that the package lists for this model: by the name in ``config.json``, by the folder's last two
    names, by a Hugging Face cache folder, or by the folder's own name. None for models it does not list."""
    from renderers.base import MODEL_RENDERER_MAP

    by_folder = {name.rpartition("/")[2].lower(): renderer for name, renderer in MODEL_RENDERER_MAP.items()}
    exact = next((MODEL_RENDERER_MAP[n] for n in _names(model_dir) if n in MODEL_RENDERER_MAP), None)
    return exact or by_folder.get(model_dir.name.lower())


def _names(model_dir: Path) -> Iterator[str]:
    yield str(_json(model_dir / "config.json").get("_name_or_path", ""))
    yield "/".join(model_dir.parts[-2:])
    for part in reversed(model_dir.parts):
        if part.startswith("models--"):
            yield part.removeprefix("models--").replace("--", "/", 1)


def _automatic(model_dir: Path, tokenizer: Any) -> Codec:
    """The listed renderer, if it renders what the model's own template renders: a fine-tune may have changed that."""
    family = family_of(model_dir)
    if family is None:
        return _template(model_dir, tokenizer)
    try:
        codec = _hand_written(tokenizer, family)
    except TemplateError:
        return _template(model_dir, tokenizer)
    if not tokenizer.chat_template:
        return codec
    own = _template(model_dir, tokenizer)
    return codec if _agree(codec, own) else own


def _agree(one: Codec, other: Codec) -> bool:
    look = Tool("look", "Look at a file", {"type": "object", "properties": {"path": {"type": "string"}}})
    messages = [
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Where is the bug?"),)),
        Message("assistant", (ToolCall("call_1", "look", {"path": "a.py"}),)),
        Message("tool", (ToolResult("call_1", "line 1"),)),
    ]
    try:
        return all(one.render(m, t) == other.render(m, t) for m, t in ((messages[:2], ()), (messages, (look,))))
    except TemplateError:
        return False


def _template(model_dir: Path, tokenizer: Any) -> TemplateCodec:
    ends = _json(model_dir / "generation_config.json").get("eos_token_id") or []
    return TemplateCodec(tokenizer, stop_ids=ends if isinstance(ends, list) else [ends])


def _hand_written(tokenizer: Any, name: str) -> RenderersCodec:
    """``thinking_retention="all"``: what was sampled stays, whatever the template does with old reasoning."""
    from renderers.base import create_renderer
    from renderers.configs import config_from_name

    config = config_from_name(name)
    keep = type(config)(thinking_retention="all")
    return RenderersCodec(tokenizer, lambda seamed: create_renderer(seamed, keep), name=name)


def _renderer_names() -> list[str]:
    from renderers.base import MODEL_RENDERER_MAP

    return sorted(set(MODEL_RENDERER_MAP.values()))


def _tokenizer(model_dir: Path) -> Any:
    named = _json(model_dir / "tokenizer_config.json").get("tokenizer_class")
    try:
        if named in _GENERIC and (model_dir / "tokenizer.json").is_file():
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(str(model_dir))
        # This class reads the model's configuration too, and with it comes torch: 250 MB and some seconds.
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(model_dir), trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise SettingsError(f"no usable tokenizer in {model_dir}: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    value = json.loads(path.read_text())
    return value if isinstance(value, dict) else {}
