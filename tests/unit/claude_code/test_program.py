"""What a layer of the program is, and what is missing without one. Fetching is tests/unit/tools/test_npm.py."""

from __future__ import annotations

import pytest

from agentrl.errors import HarnessError, SettingsError
from agentrl.settings import resolve
from agentrl_claude_code.harness import ClaudeCode
from agentrl_claude_code.program import PROGRAM, cached, fetch, layer
from agentrl_claude_code.settings import ClaudeCodeSettings


def settings(tmp_path, **more):
    values = {"AGENTRL_CACHE_DIR": str(tmp_path / "cache"), "SWE_CLAUDE_PLATFORM": "linux-x64-musl", **more}
    return resolve(values).read(ClaudeCodeSettings)


async def test_without_npm_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    chosen = settings(tmp_path)
    assert "apt-get install npm" in (await ClaudeCode(chosen).probe() or "")
    with pytest.raises(HarnessError, match="npm"):
        fetch(chosen)


async def test_a_fetched_program_needs_no_npm(tmp_path, monkeypatch):
    chosen = settings(tmp_path)
    cached(chosen).parent.mkdir(parents=True)
    cached(chosen).write_bytes(b"program")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await ClaudeCode(chosen).probe() is None
    assert fetch(chosen).read_bytes() == b"program"


def test_a_layer_is_described_without_fetching_anything(tmp_path):
    made = layer(settings(tmp_path))
    assert made.digest == layer(settings(tmp_path)).digest
    assert made.digest != layer(settings(tmp_path, SWE_CLAUDE_VERSION="1.0.0")).digest
    assert made.digest != layer(settings(tmp_path, SWE_CLAUDE_PLATFORM="linux-x64")).digest
    assert list(made.fetched) == [PROGRAM]
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("wrong", [{"SWE_CLAUDE_VERSION": "latest"}, {"SWE_CLAUDE_TOOLS": "Bash;Edit"}])
def test_settings_that_make_no_sense(tmp_path, wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        settings(tmp_path, **wrong)
