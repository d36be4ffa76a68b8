from __future__ import annotations

import json
from pathlib import Path

import pytest
from plugin_folder import plugin_folder
from whole_plugin import whole_environment

from agentrl.errors import PlanError
from agentrl.plugins import load_plugins
from agentrl.rollout.plan import Plan, make_plan
from agentrl.settings import resolve


@pytest.fixture
def folder(tmp_path):
    with plugin_folder(tmp_path) as found:
        yield found


@pytest.fixture
def environ(folder):
    return whole_environment(folder)


def plan(environ: dict[str, str], purpose="train", **changes: str) -> Plan:
    resolved = resolve(environ, changes)
    return make_plan(resolved, load_plugins(resolved), purpose=purpose)


def test_a_good_combination_has_no_problem(environ):
    made = plan(environ).require()
    assert {role: [offer.name for offer in offers] for role, offers in made.chosen.items()} == {
        "sandbox": ["whole"],
        "task format": ["whole"],
        "grader": ["whole"],
        "harness": ["whole"],
        "engine": ["whole"],
        "trainer": ["whole"],
        "dialect": ["openai-chat", "anthropic", "openai-responses"],
    }
    assert [task.id for task in made.tasks] == ["t1", "t2"]


def test_parts_are_built_once(environ):
    parts = plan(environ).parts
    assert parts.backend is parts.backend
    assert parts.trainer.last_checkpoint(Path()) == 0


def test_middleware_keeps_its_order(environ):
    made = plan(environ, AGENTRL_MIDDLEWARE="pass-2,pass-1").require()
    assert [offer.name for offer in made.chosen["middleware"]] == ["pass-2", "pass-1"]
    assert len(made.parts.middleware) == 2


def test_all_problems_are_reported_at_once_and_require_raises_them(environ):
    made = plan(environ, SWE_SANDBOX="wole", SWE_AGENT="nobody", SWE_TURN_TIMEOUT_SEC="9000", SWE_SANBOX="x")
    with pytest.raises(PlanError) as caught:
        made.require()
    assert caught.value.problems == made.problems
    text = "\n".join(made.problems)
    for part in ("Did you mean whole?", "no harness nobody", "SWE_TURN_TIMEOUT_SEC", "SWE_SANBOX is not a setting"):
        assert part in text


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("SWE_TURN_TIMEOUT_SEC", "SWE_AGENT_TIME_BUDGET_SEC"),
        ("SWE_AGENT_TIME_BUDGET_SEC", "SWE_ROLLOUT_GUARD_SEC"),
        ("SWE_ROLLOUT_GUARD_SEC", "SWE_SANDBOX_LIFETIME_SEC"),
    ],
)
def test_timeouts_nest(environ, inner, outer):
    names = ["SWE_TURN_TIMEOUT_SEC", "SWE_AGENT_TIME_BUDGET_SEC", "SWE_ROLLOUT_GUARD_SEC", "SWE_SANDBOX_LIFETIME_SEC"]
    nested = {name: str(100 * (i + 1)) for i, name in enumerate(names)}
    assert plan(environ, **nested).problems == ()
    nested[inner] = nested[outer]
    [problem] = plan(environ, **nested).problems
    assert problem == f"{inner} ({nested[outer]}) must be less than {outer} ({nested[outer]})"


@pytest.mark.parametrize(
    "changes",
    [
        {"SWE_MAX_NEW_TOKENS": "32768"},
        {"SWE_MAX_ROLLOUT_TOKENS": "100"},
        {"SWE_MAX_SAMPLE_TOKENS": "32769"},
        {"SWE_CONTEXT_TOKENS": "40961"},
    ],
    ids=str,
)
def test_token_caps_that_contradict_each_other(environ, changes):
    [problem] = plan(environ, **changes).problems
    assert next(iter(changes)) in problem


def test_positions_of_a_model_with_a_text_part(environ):
    config = Path(environ["AGENTRL_MODEL"]) / "config.json"
    config.write_text(json.dumps({"text_config": {"max_position_embeddings": 1024}}))
    [problem] = plan(environ).problems
    assert "1024 positions" in problem


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_model_folder(environ, name):
    (Path(environ["AGENTRL_MODEL"]) / name).unlink()
    [problem] = plan(environ).problems
    assert "AGENTRL_MODEL" in problem


@pytest.mark.parametrize(
    ("variable", "word"), [("AGENTRL_MODEL", "no such folder"), ("SWE_TRAIN_DATA", "no such file")]
)
def test_paths_that_are_not_there(environ, tmp_path, variable, word):
    [problem] = plan(environ, **{variable: str(tmp_path / "gone")}).problems
    assert variable in problem
    assert word in problem
    [problem] = plan(environ, **{variable: ""}).problems
    assert problem.startswith(f"{variable} is not set")


def test_bad_rows_are_problems(environ):
    Path(environ["SWE_TRAIN_DATA"]).write_text('{"id": "t1"}\n{}\n')
    [problem] = plan(environ).problems
    assert ":2: field id is absent" in problem


def test_levels_choose_training_tasks_only(environ):
    assert [t.id for t in plan(environ, AGENTRL_LEVELS="hard").tasks] == ["t2"]
    assert len(plan(environ, "rollout", AGENTRL_LEVELS="hard").tasks) == 2


def test_a_protocol_needs_both_halves(environ):
    [problem] = plan(environ, SWE_TRAIN_PROTOCOL="half").problems
    assert "no grader half" in problem


# ------------------------------------------------------------------------------------------ parts with each other


@pytest.mark.parametrize(
    ("reach", "changes", "remedy"),
    [
        ("bridge", {}, "ADAPTER_BIND_HOST"),
        ("public", {"ADAPTER_PUBLIC_HOST": "train.example"}, "ADAPTER_BIND_HOST"),
        ("public", {"AGENTRL_REACH": "public", "ADAPTER_BIND_HOST": "0.0.0.0"}, "ADAPTER_PUBLIC_HOST"),
        ("loopback", {"AGENTRL_REACH": "public", "ADAPTER_PUBLIC_HOST": "train.example"}, "AGENTRL_REACH=public"),
    ],
)
def test_an_agent_inside_a_sandbox_must_reach_the_gateway(environ, reach, changes, remedy):
    changes = {"SWE_WHOLE_REACH": reach, **changes}
    [problem] = plan(environ, SWE_WHOLE_WHERE="sandbox", **changes).problems
    assert remedy in problem
    assert plan(environ, SWE_WHOLE_WHERE="host", **changes).problems == ()


@pytest.mark.parametrize(
    ("reach", "changes", "way"),
    [
        ("loopback", {}, "directly (loopback)"),
        ("loopback public", {"ADAPTER_PUBLIC_HOST": "train.example"}, "directly (loopback)"),
        ("bridge", {"ADAPTER_BIND_HOST": "172.17.0.1"}, "directly (bridge)"),
        ("public", {"ADAPTER_BIND_HOST": "0.0.0.0", "ADAPTER_PUBLIC_HOST": "train.example"}, "at train.example"),
        ("public tunnel", {}, "by a relay (a WebSocket, or commands"),
        ("nothing", {"ADAPTER_PUBLIC_HOST": "train.example"}, "by a relay (commands"),
        ("loopback bridge", {"AGENTRL_REACH": "relay"}, "by a relay (commands"),
    ],
)
def test_ways_by_which_it_does(environ, reach, changes, way):
    made = plan(environ, SWE_WHOLE_WHERE="sandbox", SWE_WHOLE_REACH=reach, **changes)
    assert made.problems == ()
    assert f"reaches the gateway {way}" in made.abilities[0]


def test_a_chosen_part_with_a_missing_sdk_or_a_wrong_setting_is_a_problem(environ, folder):
    folder.distribution("cloud-dist", points={"cloud": "cloud_plugin"}, requires=["not-anywhere; extra == 'cloud'"])
    folder.module(
        "cloud_plugin",
        """
        from agentrl.api import PluginSettings, hookimpl
        from pydantic import Field

        class S(PluginSettings):
            zone: int = Field(1, validation_alias="SWE_CLOUD_ZONE", description="d")

        @hookimpl
        def agentrl_register_trainers(register):
            register("cloud", "nowhere:T", settings=f"{__name__}:S", extra="cloud")
        """,
    )
    problems = plan(environ, AGENTRL_TRAINER="cloud", SWE_CLOUD_ZONE="x").problems
    assert problems[0] == "trainer cloud: not-anywhere is not installed: pip install 'cloud-dist[cloud]'"
    assert problems[1].startswith("SWE_CLOUD_ZONE='x'")
    assert plan(environ, SWE_CLOUD_ZONE="x").problems == (), "of parts that are not chosen nothing is asked"


def test_variables_of_plugins_are_known(environ):
    assert plan(environ, SWE_WHOLE_REACH="bridge").problems == ()
    [problem] = plan(environ, SWE_WHOLE_REACHES="bridge").problems
    assert "Did you mean SWE_WHOLE_REACH?" in problem


def test_a_broken_plugin_is_a_problem_only_where_it_was_asked_for(environ, folder):
    folder.module("cracked", "raise ValueError('cracked')")
    folder.distribution("cracked-dist", points={"cracked": "cracked"})
    made = plan(environ)
    assert made.problems == ()
    assert any("cracked-dist 1.0" in note for note in made.notes)
    assert "cracked-dist 1.0" in plan(environ, SWE_SANDBOX="cracked").problems[0]
    assert "cracked" in plan(environ, AGENTRL_PLUGINS="whole,cracked").problems[0]


# -------------------------------------------------------------------------------------------------- purposes


def test_an_engine_may_be_a_url_and_the_weights_elsewhere(environ):
    (Path(environ["AGENTRL_MODEL"]) / "model.safetensors").unlink()
    made = plan(environ, "rollout", AGENTRL_ENGINE="http://127.0.0.1:30000")
    assert (made.problems, made.engine_url) == ((), "http://127.0.0.1:30000")
    assert "engine" not in made.chosen


def test_validate_needs_neither_model_nor_agent(environ):
    made = plan(
        environ, "validate", AGENTRL_MODEL="", SWE_AGENT="nobody", AGENTRL_ENGINE="nothing", AGENTRL_TRAINER="none"
    )
    assert made.problems == ()
    assert made.chosen.keys() == {"sandbox", "task format", "grader"}


def test_eval_has_its_own_data_and_protocol(environ, tmp_path):
    data = tmp_path / "eval.jsonl"
    data.write_text('{"id": "e1"}\n')
    made = plan(environ, "eval", SWE_EVAL_DATA=str(data), SWE_TRAIN_PROTOCOL="half", SWE_EVAL_PROTOCOL="whole")
    assert (made.problems, [task.id for task in made.tasks]) == ((), ["e1"])
    assert plan(environ, "eval", SWE_EVAL_DATA=str(data)).chosen["grader"][0].name == "whole"
    assert "SWE_EVAL_DATA is not set" in plan(environ, "eval").problems[0]


def test_what_is_probably_not_meant_is_a_note(environ):
    notes = "\n".join(
        plan(environ, AGENTRL_GROUP_SIZE="1", SWE_EVAL_TIMEOUT_SEC="3000", ADAPTER_BIND_HOST="0.0.0.0").notes
    )
    for variable in ("AGENTRL_GROUP_SIZE", "SWE_EVAL_TIMEOUT_SEC", "0.0.0.0"):
        assert variable in notes
