"""``agentrl plan``, ``plugins``, ``settings`` and ``doctor`` over a combination made of one small plugin."""

from __future__ import annotations

import json

import pytest
from plugin_folder import plugin_folder
from whole_plugin import whole_environment

from agentrl.cli.app import main


@pytest.fixture
def folder(tmp_path):
    with plugin_folder(tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def environ(folder, monkeypatch):
    values = whole_environment(folder)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "200")
    return values


def run(capsys, *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code or 0, capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------- plan


def test_a_good_plan(capsys):
    code, out = run(capsys, "plan")
    assert code == 0
    assert "Ready to train with 2 tasks" in out
    assert "No machines" in out


def test_a_bad_plan_lists_the_problems_and_ends_with_2(capsys):
    code, out = run(capsys, "plan", "SWE_AGENT=nobody", "SWE_TRAIN_DATA=")
    assert code == 2
    assert "no harness nobody" in out
    assert "SWE_TRAIN_DATA is not set" in out
    assert "Ready" not in out


def test_json_has_every_setting_with_its_source_and_no_secret(capsys, monkeypatch):
    monkeypatch.setenv("SWE_WHOLE_PASSWORD", "hunter2")
    code, out = run(capsys, "plan", "--json", "SWE_MAX_TURNS=3")
    made = json.loads(out)
    assert (code, made["problems"], made["tasks"]) == (0, [], 2)
    assert made["settings"]["SWE_MAX_TURNS"] == {"value": "3", "source": "command line", "owner": "core"}
    assert made["settings"]["SWE_SANDBOX"]["source"] == "environment"
    assert made["settings"]["SWE_MAX_NEW_TOKENS"]["source"] == "default"
    assert made["settings"]["SWE_WHOLE_REACH"] == {"value": "loopback", "source": "default", "owner": "sandbox whole"}
    assert made["settings"]["SWE_WHOLE_PASSWORD"]["value"] == "(set)"
    assert made["parts"]["sandbox"][0]["origin"] == "AGENTRL_PLUGINS"
    assert "hunter2" not in out + run(capsys, "plan")[1]


def test_a_plan_for_another_purpose(capsys):
    code, out = run(capsys, "plan", "--for", "validate", "AGENTRL_MODEL=", "--json")
    assert (code, json.loads(out)["purpose"]) == (0, "validate")


# ------------------------------------------------------------------------------------------------------ plugins


def test_plugins_as_json(capsys, folder):
    folder.module("cracked", "raise ValueError('a crack')")
    folder.module("cloud_plugin", _CLOUD)
    folder.distribution("cracked-dist", points={"cracked": "cracked"})
    folder.distribution("cloud-dist", points={"cloud": "cloud_plugin"}, requires=["not-anywhere; extra == 'cloud'"])
    code, out = run(capsys, "plugins", "--json")
    listed = json.loads(out)
    offers = {(offer["kind"], offer["name"]): offer for offer in listed["offers"]}
    assert code == 0
    assert offers["dialects", "anthropic"]["origin"] == "built-in"
    assert offers["sandboxes", "whole"]["missing"] is None
    assert offers["sandboxes", "cloud"]["missing"].endswith("pip install 'cloud-dist[cloud]'")
    assert listed["broken"] == [
        {"plugin": "cracked", "module": "cracked", "origin": "cracked-dist 1.0", "error": "ValueError: a crack"}
    ]
    table = run(capsys, "plugins")[1]
    assert "pip install 'cloud-dist[cloud]'" in table
    assert "cracked-dist 1.0" in table


_CLOUD = """
    from agentrl.api import hookimpl

    @hookimpl
    def agentrl_register_sandboxes(register):
        register("cloud", "nowhere:B", extra="cloud")
"""


# ----------------------------------------------------------------------------------------------------- settings


def test_settings_lists_core_and_plugins(capsys):
    out = run(capsys, "settings")[1]
    assert "SWE_SANDBOX" in out
    assert "SWE_WHOLE_REACH" in out


def test_the_markdown_is_of_this_distribution_only(capsys):
    out = run(capsys, "settings", "--markdown")[1]
    assert out.startswith("<!-- settings -->\n")
    assert out.endswith("<!-- /settings -->\n")
    assert "| `SWE_MAX_TURNS` | `50` |" in out
    assert "SWE_WHOLE_REACH" not in out


def test_the_block_of_a_file_is_renewed_in_place(capsys, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- settings -->\nold\n<!-- /settings -->\nafter\n")
    block = run(capsys, "settings", "--markdown")[1]
    assert run(capsys, "settings", "--update", str(readme))[0] == 0
    assert readme.read_text() == f"before\n{block}after\n"
    readme.write_text("no markers\n")
    assert run(capsys, "settings", "--update", str(readme))[0] == 2
    assert readme.read_text() == "no markers\n"


def test_names_for_remote_workers(capsys):
    names = run(capsys, "settings", "--forward")[1].splitlines()
    assert {"SWE_SANDBOX", "SWE_WHOLE_REACH"} <= set(names)
    assert "SWE_WHOLE_PASSWORD" not in names


# ------------------------------------------------------------------------------------------------------- doctor


def test_the_doctor_asks_every_chosen_part(capsys):
    code, out = run(capsys, "doctor", "--for", "validate", "--json")
    assert code == 0
    assert [f["what"] for f in json.loads(out)] == [
        "python",
        "git",
        "sandbox whole",
        "task format whole",
        "grader whole",
    ]


def test_what_a_part_says_is_missing_is_printed_and_ends_with_1(capsys):
    code, out = run(capsys, "doctor", "--for", "validate", "SWE_WHOLE_MISSING=no kernel: apt-get install kernel")
    assert code == 1
    assert "no kernel: apt-get install kernel" in out


def test_problems_of_the_plan_are_findings(capsys):
    code, out = run(capsys, "doctor", "SWE_AGENT=nobody", "AGENTRL_MODEL=")
    assert code == 1
    assert "no harness nobody" in out
    assert "AGENTRL_MODEL is not set" in out
    assert "trainer whole" in out


def test_a_model_that_cannot_be_loaded_is_a_finding(capsys):
    code, out = run(capsys, "doctor", "--json")
    [finding] = [finding for finding in json.loads(out) if finding["missing"]]
    assert code == 1
    assert finding["what"] == "model model"
    assert "tokenizer" in finding["missing"]
