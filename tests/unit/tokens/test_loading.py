from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agentrl.errors import SettingsError
from agentrl.tokens import load_codec
from agentrl.tokens.loading import family_of


def test_importing_the_package_starts_no_tokenizer_library():
    code = "import agentrl.tokens, agentrl.tokens.forest, agentrl.tokens.samples, sys; print('transformers' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_an_unknown_model_gets_its_own_template(model_dir):
    assert load_codec(model_dir("tools")).name == "template"


def test_a_known_family_gets_its_hand_written_format(model_dir):
    path = model_dir("forgetful", _name_or_path="Qwen/Qwen3-8B")
    assert load_codec(path).name == "renderers:qwen3"


def test_a_fine_tune_with_another_template_gets_that_template(model_dir):
    path = model_dir("tools", _name_or_path="Qwen/Qwen3-8B")
    assert load_codec(path).name == "template"


def test_a_family_with_another_tokenizer_gets_the_template(model_dir):
    path = model_dir("tools", _name_or_path="MiniMaxAI/MiniMax-M2")
    assert load_codec(path).name == "template"


@pytest.mark.parametrize("name", ["qwen3", "Qwen3", "renderers:qwen3"])
def test_a_renderer_can_be_named(model_dir, name):
    assert load_codec(model_dir("tools"), renderer=name).name == "renderers:qwen3"


def test_the_template_can_be_insisted_on(model_dir):
    path = model_dir("forgetful", _name_or_path="Qwen/Qwen3-8B")
    assert load_codec(path, renderer="template").name == "template"


@pytest.mark.parametrize(("name", "hint"), [("qwen33", "did you mean 'qwen3'"), ("zzzz", "known: auto, template")])
def test_an_unknown_renderer_is_refused_with_a_hint(model_dir, name, hint):
    with pytest.raises(SettingsError, match=hint):
        load_codec(model_dir("tools"), renderer=name)


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="no usable tokenizer"):
        load_codec(tmp_path)


@pytest.mark.parametrize("ends", [7, [7, 9]])
def test_end_tokens_of_the_generation_config_stop_a_reply(model_dir, tokenizer_for, ends):
    path = model_dir("tools")
    names = ["<|eot_id|>", "<|eom_id|>"]
    ids = [tokenizer_for("tools").convert_tokens_to_ids(n) for n in names][: len(ends) if isinstance(ends, list) else 1]
    (path / "generation_config.json").write_text(
        json.dumps({"eos_token_id": ids if isinstance(ends, list) else ids[0]})
    )
    assert set(ids) < set(load_codec(path).stop_token_ids)


@pytest.mark.parametrize(
    ("folder", "family"),
    [
        ("Qwen/Qwen3-8B", "qwen3"),
        ("models--Qwen--Qwen3-8B/snapshots/0123abcd", "qwen3"),
        ("checkpoints/qwen3-8b", "qwen3"),
        ("Qwen/Qwen3-8B-mine", None),
    ],
)
def test_the_family_is_read_from_the_folder(tmp_path, folder, family):
    path = tmp_path / folder
    path.mkdir(parents=True)
    assert family_of(path) == family
