"""The launch scripts for clusters, as far as that goes without one: what they would run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.plugins import load_plugins
from agentrl.settings import CHECKED, Settings, resolve, variables

EXAMPLES = Path(__file__).parents[3] / "examples"
SCRIPTS = ["train_8nodes", "train_1node_miles"]


def dry_run(name: str, **values: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*CHECKED, "ADAPTER_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    env = {**kept, "PATH": path, "SWE_SANDBOX": "local", "RUN_ROOT": "/nowhere/run", **values}
    return subprocess.run([EXAMPLES / name / "launch.sh", "--dry-run"], env=env, capture_output=True, text=True)


def commands(name: str, **values: str) -> list[list[str]]:
    done = dry_run(name, **values)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


def flag(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_shell_can_read_it(name):
    subprocess.run(["bash", "-n", EXAMPLES / name / "launch.sh"], check=True)


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name):
    done = subprocess.run(["shellcheck", EXAMPLES / name / "launch.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_variable_that_travels_is_a_setting(name):
    [*_, job] = commands(name)
    registry = load_plugins(resolve({})).registry
    known = {n for cls in (Settings, *registry.settings_classes()) for v in variables(cls) for n in v.spellings}
    travelling = json.loads(flag(job, "--runtime-env-json"))["env_vars"]
    ours = {n for n in travelling if n.startswith((*CHECKED, "ADAPTER_"))}
    assert ours <= known
    assert {"SWE_SANDBOX", "SWE_AGENT", "SWE_TRAIN_PROTOCOL", "SWE_ROLLOUT_GUARD_SEC"} <= ours
    assert "127.0.0.1" in travelling["NO_PROXY"].split(",") == travelling["no_proxy"].split(",")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_numbers_fit_together(name):
    [*_, job] = commands(name)
    settings = resolve(json.loads(flag(job, "--runtime-env-json"))["env_vars"]).settings
    assert settings.turn_timeout_sec < settings.agent_time_budget_sec
    assert settings.agent_time_budget_sec + settings.eval_timeout_sec < settings.rollout_guard_sec
    assert settings.rollout_guard_sec < settings.sandbox_lifetime_sec
    context, turn = (int(flag(job, f"--rollout-max-{what}-len")) for what in ("context", "response"))
    assert (settings.context_tokens, settings.max_new_tokens) == (context, turn)
    assert turn < context == int(flag(job, "--sglang-context-length"))
    rollouts = int(flag(job, "--rollout-batch-size")) * int(flag(job, "--n-samples-per-prompt"))
    assert settings.concurrency == rollouts == int(flag(job, "--global-batch-size"))


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("train_8nodes", {"SANDBOX_QUOTA": "64"}, "SANDBOX_QUOTA of at least 80"),
        ("train_8nodes", {"TURN_TOKENS": "65536"}, "TURN_TOKENS"),
        ("train_8nodes", {"CONTEXT_TOKENS": "98305"}, "multiple of CP"),
        ("train_8nodes", {"GROUPS_PER_STEP": "5", "GROUP_SIZE": "3"}, "15 rollouts"),
        ("train_1node_miles", {"DISK_QUOTA_GB": "320"}, "DISK_QUOTA_GB"),
        ("train_1node_miles", {"TOKENS_KEPT_BY": "nobody"}, "TOKENS_KEPT_BY"),
    ],
)
def test_what_cannot_work_is_refused_by_name(name, values, complaint):
    done = dry_run(name, **values)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""


def test_a_key_that_is_set_by_value_does_not_travel():
    done = dry_run("train_8nodes", AGENTRL_REMOTE_API_KEY="hunter2")
    assert done.returncode == 2
    assert "AGENTRL_REMOTE_API_KEY_FILE" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_miles_can_keep_the_tokens_itself():
    [*_, job] = commands("train_1node_miles", TOKENS_KEPT_BY="miles")
    assert flag(job, "--custom-agent-function-path") == "agentrl_miles.agent"
    [*_, job] = commands("train_1node_miles")
    assert flag(job, "--custom-generate-function-path") == "agentrl_miles.generate"
