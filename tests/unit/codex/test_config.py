"""What Codex is told."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from agentrl.api import HarnessJob
from agentrl.errors import SettingsError
from agentrl.settings import resolve
from agentrl_codex.config import KEY, config, script
from agentrl_codex.settings import CodexSettings

JOB = HarnessJob(
    rollout_id="r1",
    problem="Repair it.",
    workdir="/testbed",
    base_url="http://127.0.0.1:1234/s/token",
    api_key="token",
    model="tiny",
    max_turns=5,
    time_budget_sec=60.0,
    turn_timeout_sec=100.0,
    context_tokens=1000,
)


def settings(**variables):
    return resolve(variables).read(CodexSettings)


def told(job=JOB, **variables):
    return tomllib.loads(config(settings(**variables), job, "/home"))


def test_all_that_it_asks_goes_to_the_session():
    said = told(SWE_CODEX_RETRIES="7")
    provider = said["model_providers"][said["model_provider"]]
    assert (provider["base_url"], provider["wire_api"]) == ("http://127.0.0.1:1234/s/token/v1", "responses")
    assert provider["env_key"] == KEY
    assert KEY in said["shell_environment_policy"]["exclude"]
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (7, 2)
    assert provider["stream_idle_timeout_ms"] > 100_000


@pytest.mark.parametrize("name", ['a"b\\c', "Ünïcode 𝄞", "new\nline", "\u007f"])
def test_any_name_of_a_model_is_a_string(name):
    assert told(replace(JOB, model=name))["model"] == name


def test_files_of_the_repository_and_own_instructions():
    assert told()["project_doc_max_bytes"] == 0
    assert "model_instructions_file" not in told()
    chosen = told(SWE_CODEX_INSTRUCTIONS="Be brief.", SWE_CODEX_CUSTOMIZATIONS="1")
    assert "project_doc_max_bytes" not in chosen
    assert chosen["model_instructions_file"] == "/home/instructions"


def test_nothing_secret_and_nothing_long_is_an_argument():
    line = script("/home")
    assert "token" not in line and "Repair" not in line


@pytest.mark.parametrize("wrong", [{"SWE_CODEX_VERSION": "latest"}, {"SWE_CODEX_RETRIES": "-1"}])
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        settings(**wrong)
