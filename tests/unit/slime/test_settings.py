"""Who decides what: slime's arguments, the environment in slime's names, the environment in ours."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

import agentrl_slime
from agentrl.plugins import load_plugins
from agentrl.settings import resolve
from agentrl_slime.settings import FOREIGN, flags, read_launch, refusals


def arguments(**changes) -> Namespace:
    values = {
        "hf_checkpoint": "/models/m",
        "sglang_router_ip": "10.0.0.7",
        "sglang_router_port": 30000,
        "rollout_max_context_len": 96000,
        "rollout_max_response_len": 32768,
        "rollout_temperature": 0.8,
        "rollout_top_p": 1.0,
        "rollout_top_k": -1,
        "rollout_batch_size": 8,
        "n_samples_per_prompt": 8,
    }
    return Namespace(**{**values, **changes})


def settings(environ: dict[str, str], **changes):
    launch = read_launch(arguments(**changes), environ)
    return resolve(launch.environ, launch.overrides).settings


def test_arguments_decide_about_the_model_whatever_the_environment_says():
    got = settings({"SWE_CONTEXT_TOKENS": "5", "AGENTRL_TEMPERATURE": "9", "AGENTRL_ENGINE": "local"})
    assert (got.context_tokens, got.max_new_tokens, got.temperature) == (96000, 32768, 0.8)
    assert (got.engine, got.model) == ("http://10.0.0.7:30000", Path("/models/m"))


def test_an_argument_that_is_not_given_leaves_it_to_the_environment():
    assert settings({"SWE_CONTEXT_TOKENS": "5000"}, rollout_max_context_len=None).context_tokens == 5000


def test_the_guard_follows_the_budgets_unless_it_is_set():
    budgets = {"SWE_AGENT_TIME_BUDGET_SEC": "5400", "SWE_EVAL_TIMEOUT_SEC": "600"}
    assert settings(budgets).rollout_guard_sec == 5400 + 600 + 180
    assert settings({**budgets, "SWE_ROLLOUT_GUARD_SEC": "0"}).rollout_guard_sec == 5400 + 600 + 180
    assert settings({**budgets, "SWE_ROLLOUT_GUARD_SEC": "7000"}).rollout_guard_sec == 7000
    assert settings({**budgets, "SWE_ROLLOUT_GUARD_SEC": "7000"}).sandbox_lifetime_sec > 7000


def test_the_name_of_slime_counts_where_ours_is_silent():
    theirs = {"SLIME_AGENT_SANDBOX_LIFETIME_SEC": "9000"}
    assert settings(theirs).sandbox_lifetime_sec == 9000
    assert settings({**theirs, "SWE_SANDBOX_LIFETIME_SEC": "8000"}).sandbox_lifetime_sec == 8000


def test_slime_bounds_its_rollouts_itself():
    assert settings({}).concurrency >= 64
    assert settings({"SWE_CONCURRENCY": "3"}).concurrency == 3


def test_every_flag_is_spelled_as_slime_spells_it():
    assert flags()["SWE_CONTEXT_TOKENS"] == "--rollout-max-context-len"
    assert flags()["AGENTRL_MODEL"] == "--hf-checkpoint"


@pytest.mark.parametrize(
    "argument", ["partial_rollout", "group_rm", "apply_chat_template", "use_rollout_routing_replay"]
)
def test_what_cannot_be_combined_is_named(argument: str):
    [problem] = refusals(arguments(**{argument: True}))
    assert problem.startswith(f"--{argument.replace('_', '-')}: ")
    assert list(refusals(arguments())) == []


def test_nothing_of_core_and_plugins_is_mistaken_for_a_name_of_slime():
    registry = load_plugins(resolve({})).registry
    names = {field.validation_alias for cls in registry.settings_classes() for field in cls.model_fields.values()}
    assert names
    assert not [name for name in names if FOREIGN.fullmatch(str(name))]


def test_the_code_names_no_part():
    registry = load_plugins(resolve({})).registry
    kinds = ("sandboxes", "harnesses", "graders")
    names = {offer.name for kind in kinds for offer in registry.offers(kind)} - {"local"}
    assert {"mini-swe", "claude-code", "swebench"} <= names
    for path in Path(agentrl_slime.__file__).parent.glob("*.py"):
        words = path.read_text().lower().replace("_", "-")
        assert not [name for name in names if name in words], path
