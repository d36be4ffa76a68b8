from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import Field, SecretStr

from agentrl.cli.app import make_app
from agentrl.cli.env import environment_markdown, worker_environment
from agentrl.errors import SettingsError
from agentrl.plugins import load_plugins
from agentrl.rollout.plan import declared
from agentrl.settings import PluginSettings, resolve


class CloudSettings(PluginSettings):
    key: SecretStr | None = Field(None, validation_alias="CLOUD_API_KEY", description="Key of the cloud")
    url: str = Field("https://cloud", validation_alias="CLOUD_URL", description="Where it is")


def test_what_is_set_and_declared_goes_to_the_workers_and_nothing_else():
    values = {
        "SWE_SANDBOX": "local",
        "CLOUD_URL": "https://x",
        "HOME": "/home/a",
        "OTHER": "1",
        "SWE_TERMINUS_PARSER": "xml",
    }
    resolved = resolve(values)
    assert worker_environment(resolved, [CloudSettings]) == {"SWE_SANDBOX": "local", "CLOUD_URL": "https://x"}
    assert worker_environment(resolved, []) == {"SWE_SANDBOX": "local"}


def test_a_secret_goes_as_the_path_of_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("key").write_text("hunter2\n")
    found = worker_environment(resolve({"CLOUD_API_KEY_FILE": "key"}), [CloudSettings])
    assert found == {"CLOUD_API_KEY_FILE": str(tmp_path / "key")}
    with pytest.raises(SettingsError, match="CLOUD_API_KEY_FILE instead") as refusal:
        worker_environment(resolve({"CLOUD_API_KEY": "hunter2"}), [CloudSettings])
    assert "hunter2" not in str(refusal.value)


def test_the_table_has_the_names_that_workers_get():
    table = environment_markdown([CloudSettings])
    assert "| `CLOUD_API_KEY_FILE` |  | File that holds: Key of the cloud |" in table
    assert "| `CLOUD_URL` | `https://cloud` | Where it is |" in table
    assert "`CLOUD_API_KEY`" not in table


def test_only_the_chosen_parts_declare():
    def names(**values: str) -> set[str]:
        resolved = resolve(values)
        return {cls.__name__ for cls in declared(resolved, load_plugins(resolved).registry, "train", "eval")}

    assert "HarborSettings" in names(SWE_EVAL_PROTOCOL="harbor")
    assert "HarborSettings" not in names()


def test_the_command_prints_a_runtime_environment(monkeypatch, capsys):
    monkeypatch.setenv("SWE_AGENT", "terminus-2")
    monkeypatch.setenv("SWE_MINI_OUTPUT_CHARS", "5")
    words = ["env", "SWE_MAX_TURNS=3", "--ray-json", "--also", "NO_PROXY=10.0.0.1"]
    make_app(words)(words, standalone_mode=False)
    printed = json.loads(capsys.readouterr().out)["env_vars"]
    assert {"SWE_AGENT": "terminus-2", "SWE_MAX_TURNS": "3", "NO_PROXY": "10.0.0.1"}.items() <= printed.items()
    assert "SWE_MINI_OUTPUT_CHARS" not in printed
