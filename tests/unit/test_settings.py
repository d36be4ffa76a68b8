from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import Field, SecretStr

from agentrl.errors import SettingsError
from agentrl.settings import (
    PluginSettings,
    Settings,
    environment,
    forwarded,
    resolve,
    spelled,
    unknown_variables,
    variables,
)


class CloudSettings(PluginSettings):
    user: str = Field("nobody", validation_alias="SWE_CLOUD_USER", description="Account")
    api_key: SecretStr | None = Field(None, validation_alias="CLOUD_API_KEY", description="Credential")
    regions: int = Field(1, ge=1, le=9, validation_alias="SWE_CLOUD_REGIONS", description="Regions")


def test_nothing_set_gives_the_defaults():
    resolved = resolve({})
    assert (resolved.settings.sandbox, resolved.settings.agent, resolved.settings.train_data) == (
        "local",
        "mini-swe",
        None,
    )
    assert {resolved.source(v.name) for v in variables(Settings)} == {"default"}


def test_an_empty_variable_is_an_unset_one():
    resolved = resolve({"SWE_MAX_TURNS": "", "SWE_SANDBOX": ""})
    assert (resolved.settings.max_turns, resolved.settings.sandbox) == (50, "local")
    assert resolved.source("SWE_MAX_TURNS") == "default"


def test_the_command_line_wins_over_the_environment_and_says_so():
    resolved = resolve({"SWE_SANDBOX": "docker", "SWE_AGENT": "codex"}, {"SWE_SANDBOX": "e2b"})
    assert (resolved.settings.sandbox, resolved.source("SWE_SANDBOX")) == ("e2b", "command line")
    assert (resolved.settings.agent, resolved.source("SWE_AGENT")) == ("codex", "environment")


def test_an_empty_word_on_the_command_line_unsets_a_variable():
    resolved = resolve({"SWE_SANDBOX": "docker"}, {"SWE_SANDBOX": ""})
    assert (resolved.settings.sandbox, resolved.source("SWE_SANDBOX")) == ("local", "default")


def test_the_process_environment_is_used_when_none_is_given(monkeypatch):
    monkeypatch.setenv("SWE_MAX_TURNS", "7")
    assert resolve().settings.max_turns == 7
    assert resolve({}).settings.max_turns == 50


def test_types():
    settings = resolve(
        {"SWE_TURN_TIMEOUT_SEC": "1.5", "AGENTRL_LEVELS": " a, b,,", "SWE_TRAIN_DATA": "x.jsonl", "AGENTRL_TOP_K": "-1"}
    ).settings
    assert settings.turn_timeout_sec == 1.5
    assert settings.levels == ("a", "b")
    assert settings.train_data == Path("x.jsonl")


@pytest.mark.parametrize(
    ("value", "numbers", "shown"),
    [
        ("", range(0, 1), "0"),
        ("18000", range(18000, 18001), "18000"),
        ("18000-18007", range(18000, 18008), "18000-18007"),
    ],
)
def test_the_gateways_port_is_one_or_a_range(value, numbers, shown):
    port = resolve({"ADAPTER_PORT": value}).settings.port
    assert (port.numbers, str(port)) == (numbers, shown)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SWE_MAX_TURNS", "many", "integer"),
        ("SWE_MAX_TURNS", "-1", "greater than or equal to 0"),
        ("SWE_TURN_TIMEOUT_SEC", "0", "greater than 0"),
        ("SWE_TURN_TIMEOUT_SEC", "nan", "finite"),
        ("AGENTRL_TEMPERATURE", "inf", "finite"),
        ("AGENTRL_DTYPE", "float16", "'float32' or 'bfloat16'"),
        ("ADAPTER_PORT", "65536", "65535"),
        ("ADAPTER_PORT", "18000-", "range of ports"),
        ("ADAPTER_PORT", "18007-18000", "lower one first"),
        ("ADAPTER_PORT", "0-10", "lower one first"),
        ("AGENTRL_TOP_P", "1.1", "less than or equal to 1"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(variable, value, expected):
    with pytest.raises(SettingsError) as caught:
        resolve({variable: value})
    assert str(caught.value).startswith(f"{variable}={value!r}: should be ")
    assert expected in str(caught.value)


def test_all_wrong_values_are_reported_at_once():
    with pytest.raises(SettingsError) as caught:
        resolve({"SWE_MAX_TURNS": "x", "AGENTRL_SEED": "y"})
    assert {line.partition("=")[0] for line in str(caught.value).splitlines()} == {"SWE_MAX_TURNS", "AGENTRL_SEED"}


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        resolve({}).settings.sandbox = "other"  # type: ignore[misc]


# ------------------------------------------------------------------------------------------------------ plugins


def test_a_field_is_never_filled_from_a_variable_that_has_its_name(monkeypatch):
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("user", "root")
    assert CloudSettings().user == "nobody"
    assert resolve({"USER": "root", "user": "root"}).read(CloudSettings).user == "nobody"


def test_a_plugin_class_can_be_made_by_itself(monkeypatch):
    monkeypatch.setenv("SWE_CLOUD_USER", "from-environment")
    monkeypatch.setenv("SWE_CLOUD_REGIONS", "")
    assert CloudSettings().user == "from-environment"
    assert CloudSettings(user="keyword").user == "keyword"
    assert CloudSettings().regions == 1


def test_a_plugin_class_reads_the_resolved_variables_and_nothing_else(monkeypatch):
    monkeypatch.setenv("SWE_CLOUD_USER", "ambient")
    resolved = resolve({}, {"SWE_CLOUD_REGIONS": "3"})
    assert resolved.read(CloudSettings).regions == 3
    assert resolved.read(CloudSettings).user == "nobody"


def test_a_wrong_secret_is_not_shown():
    class Strict(PluginSettings):
        api_key: SecretStr = Field(validation_alias="CLOUD_API_KEY", description="Credential", min_length=40)

    with pytest.raises(SettingsError) as caught:
        resolve({"CLOUD_API_KEY": "hunter2"}).read(Strict)
    assert "CLOUD_API_KEY=(hidden)" in str(caught.value)
    assert "hunter2" not in str(caught.value) + str(caught.value.__cause__)


def test_a_setting_without_default_says_that_it_must_be_set():
    class Needy(PluginSettings):
        url: str = Field(validation_alias="SWE_NEEDY_URL", description="Where it is")

    with pytest.raises(SettingsError, match="SWE_NEEDY_URL must be set: Where it is"):
        resolve({}).read(Needy)


@pytest.mark.parametrize("field", [Field(1, description="no variable"), Field(1, validation_alias="SWE_X")])
def test_a_field_needs_a_variable_and_a_description(field):
    cls = type("Sloppy", (PluginSettings,), {"__annotations__": {"x": int}, "x": field})
    with pytest.raises(SettingsError, match="x needs Field"):
        variables(cls)


def test_secrets_are_known_by_type_and_by_name():
    class Mixed(PluginSettings):
        by_type: SecretStr | None = Field(None, validation_alias="SWE_MIXED_PASSPHRASE", description="d")
        by_name: str = Field("", validation_alias="SWE_MIXED_TOKEN", description="d")
        plain: int = Field(1, validation_alias="SWE_MIXED_TOKENS", description="d")
        field: str = Field("", validation_alias="SWE_MIXED_METADATA_KEY", description="d")

    assert [v.name for v in variables(Mixed) if v.secret] == ["SWE_MIXED_PASSPHRASE", "SWE_MIXED_TOKEN"]


def test_a_secret_may_lie_in_a_file(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_text("hunter2\n")
    named = {"CLOUD_API_KEY_FILE": str(path)}
    assert resolve(named).read(CloudSettings).api_key == SecretStr("hunter2")
    monkeypatch.setenv("CLOUD_API_KEY_FILE", str(path))
    assert CloudSettings().api_key == SecretStr("hunter2")


def test_a_plain_setting_is_not_read_from_a_file(tmp_path):
    assert resolve({"SWE_CLOUD_USER_FILE": str(tmp_path)}).read(CloudSettings).user == "nobody"


@pytest.mark.parametrize(
    ("more", "complaint"), [({}, "no such file"), ({"CLOUD_API_KEY": "hunter2"}, "both set: one is enough")]
)
def test_a_secret_that_cannot_be_had_is_said(more, complaint):
    with pytest.raises(SettingsError, match=complaint) as refusal:
        resolve({"CLOUD_API_KEY_FILE": "/nowhere/key", **more}).read(CloudSettings)
    assert "hunter2" not in str(refusal.value)


def test_spelling():
    assert [spelled(v) for v in (None, True, 600.0, 0.5, ("a", "b"), SecretStr("k"), SecretStr(""))] == [
        "",
        "true",
        "600",
        "0.5",
        "a,b",
        "(set)",
        "",
    ]
    assert spelled(Path.home() / "x") == "~/x"


# ------------------------------------------------------------------------------------------------------- names


def test_unknown_names_get_a_suggestion():
    known = [v.name for v in variables(Settings)]
    names = ["SWE_SANBOX", "AGENTRL_SEEDS", "SWE_SANDBOX", "HOME", "SWE_ZZZZZZZZ"]
    assert unknown_variables(names, known) == (
        "AGENTRL_SEEDS is not a setting. Did you mean AGENTRL_SEED?",
        "SWE_SANBOX is not a setting. Did you mean SWE_SANDBOX?",
        "SWE_ZZZZZZZZ is not a setting.",
    )


def test_workers_get_every_setting_but_secrets_and_what_belongs_to_a_machine():
    class Odd(PluginSettings):
        path: str = Field("", validation_alias="PATH", description="d")
        token: str = Field("", validation_alias="SWE_ODD_TOKEN", description="d")

    names = forwarded([CloudSettings, Odd])
    assert {"SWE_SANDBOX", "ADAPTER_PUBLIC_HOST", "SWE_CLOUD_USER"} <= set(names)
    assert not {"CLOUD_API_KEY", "PATH", "SWE_ODD_TOKEN"} & set(names)
    assert len(names) == len(set(names))


def test_the_environment_is_a_copy(monkeypatch):
    monkeypatch.setenv("SWE_COPY", "1")
    copy = environment()
    copy["SWE_COPY"] = "2"
    assert os.environ["SWE_COPY"] == "1"
