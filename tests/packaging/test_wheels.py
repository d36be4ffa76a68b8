from __future__ import annotations

import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SDKS = {"docker", "e2b", "daytona", "daytona_sdk", "swebench", "sglang", "megatron", "slime", "ray", "modal", "harbor"}


def names(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_of_the_repository_is_in_the_wheel(our_wheel):
    packages = {path.parent.name for path in ROOT.glob("*/*/agentrl_*/__init__.py") if "examples" not in path.parts}
    assert packages, "the repository has plugins"
    inside = {name.split("/")[0] for name in names(our_wheel) if name.endswith("/__init__.py")}
    assert inside == packages | {"agentrl"}


def test_every_source_file_is_in_the_wheel(our_wheel):
    inside = set(names(our_wheel))
    for folder in project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        package = ROOT / folder
        for path in package.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{package.name}/{path.relative_to(package)}" in inside


def test_every_package_is_typed(our_wheel, example_wheel):
    for wheel in (our_wheel, example_wheel):
        inside = set(names(wheel))
        tops = {name.split("/")[0] for name in inside if name.endswith("/__init__.py")}
        assert {top for top in tops if f"{top}/py.typed" not in inside} == set()


def test_no_file_or_package_is_called_like_an_sdk(our_wheel, example_wheel):
    for wheel in (our_wheel, example_wheel):
        tops = {name.split("/")[0].removesuffix(".py") for name in names(wheel)}
        assert not tops & SDKS
        assert all(top.startswith("agentrl") for top in tops), tops


def test_the_wheel_has_no_tests_caches_or_other_peoples_names(our_wheel):
    for name in names(our_wheel):
        assert not name.startswith(("agentrl/worker", "agentrl/eval", "tests/", "examples/"))
        assert "__pycache__" not in name


def test_entry_points_are_those_of_the_project_file(our_wheel):
    [name] = [name for name in names(our_wheel) if name.endswith(".dist-info/entry_points.txt")]
    text = zipfile.ZipFile(our_wheel).read(name).decode()
    for point, module in project()["project"]["entry-points"]["agentrl"].items():
        assert f"{point} = {module}" in text


def test_what_runs_is_what_was_installed(installed):
    script = "import agentrl, agentrl_example_grader as e; print(agentrl.__file__); print(e.__file__)"
    done = subprocess.run(
        [installed.python, "-c", script], cwd=installed.folder, capture_output=True, text=True, check=True
    )
    assert all(line.startswith(str(installed.folder)) for line in done.stdout.splitlines())


def test_a_third_party_grader_is_listed_with_its_distribution(installed):
    listed = installed.json("plugins")
    mine = [offer for offer in listed["offers"] if offer["name"] == "linecount"]
    assert {offer["kind"] for offer in mine} == {"graders", "task_formats"}
    assert {offer["origin"] for offer in mine} == {"agentrl-example-grader 0.1.0"}
    assert all(offer["missing"] is None for offer in mine)


def test_every_entry_point_of_ours_loads_from_the_wheel(installed):
    listed = installed.json("plugins")
    assert listed["broken"] == []
    plugins = {offer["plugin"] for offer in listed["offers"] if offer["origin"].startswith("agentrl ")}
    assert plugins == set(project()["project"]["entry-points"]["agentrl"].values())


def test_a_third_party_grader_is_chosen_by_environment_variable(installed):
    tasks = ROOT / "examples" / "plugin" / "tasks.jsonl"
    plan = installed.json("plan", "--for", "validate", SWE_TRAIN_PROTOCOL="LineCount", SWE_TRAIN_DATA=str(tasks))
    assert plan["problems"] == []
    assert plan["tasks"] == 3
    for role in ("grader", "task format"):
        [offer] = plan["parts"][role]
        assert (offer["name"], offer["origin"]) == ("linecount", "agentrl-example-grader 0.1.0")
    assert plan["settings"]["SWE_LINECOUNT_MAX_BYTES"]["source"] == "default"


@pytest.mark.parametrize("name", ["linecount", "agentrl_example_grader", "agentrl-example-grader"])
def test_it_can_be_disabled(installed, name):
    listed = installed.json("plugins", AGENTRL_DISABLE_PLUGINS=name)
    assert not [offer for offer in listed["offers"] if offer["name"] == "linecount"]


def test_a_misspelt_variable_of_it_gets_a_suggestion(installed):
    plan = installed.json("plan", check=False, SWE_LINECOUNT_MAX_BYTE="1")
    assert "SWE_LINECOUNT_MAX_BYTE is not a setting. Did you mean SWE_LINECOUNT_MAX_BYTES?" in plan["problems"]
