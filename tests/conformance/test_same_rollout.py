"""The same rollout on every backend: the same journal, but for ids and times. And none that lost its machine has a reward."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from clouds import NAMES, cloud
from one_rollout import REPLIES, roll, roomy_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return roomy_model(tmp_path_factory.mktemp("model"))


def without_ids_and_times(row: dict[str, Any]) -> dict[str, Any]:
    """Turns and calls are named by their place; how long something took is left out, that it took place is not."""
    calls = {call["request_id"]: f"call {place}" for place, call in enumerate(row["calls"])}
    turns = {turn["id"]: f"turn {place}" for place, turn in enumerate(row["turns"])}
    text = json.dumps({**row, "seconds": sorted(row["seconds"])})
    for name, place in {**calls, **turns}.items():  # calls are named after turns
        text = text.replace(name, place)
    text = re.sub(r'"(started_at|duration_sec)": [\d.e-]+', r'"\1": 0', text)
    return dict(json.loads(re.sub(r"in \d+\.\d+s", "in 0s", text)))


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """What the local backend made of it, once it was asked."""
    return {}


@pytest.fixture
async def expected(known, tmp_path, model_dir, local_state):
    if not known:
        row = await roll(tmp_path, model_dir, {"SWE_SANDBOX": "local", "SWE_LOCAL_STATE_DIR": str(local_state)})
        assert (row["exit_status"], row["reward"], len(row["turns"])) == ("solved", 1.0, len(REPLIES)), row["message"]
        known.update(without_ids_and_times(row))
    return known


@pytest.mark.parametrize("name", NAMES)
async def test_on_a_cloud(name, expected, tmp_path, model_dir, monkeypatch):
    async with cloud(name, tmp_path, monkeypatch) as there:
        made = await roll(tmp_path, model_dir, {"SWE_SANDBOX": name, **there.environment})
        assert not there.server.machines
    assert without_ids_and_times(made) == expected


async def test_on_docker(expected, tmp_path, model_dir, docker_settings):
    settings = docker_settings()
    variables = {"SWE_SANDBOX": "docker", "DOCKER_HOST": settings.host, "SWE_DOCKER_IMAGE": settings.image}
    made = await roll(tmp_path, model_dir, variables)
    assert without_ids_and_times(made) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("fault", "status"),
    [("vanish", "sandbox_lost"), ("unauthorized", "sandbox_failed")],
    ids=["vanish", "unauthorized"],
)
async def test_a_machine_that_is_lost_is_no_reward(name, fault, status, tmp_path, model_dir, monkeypatch):
    """The model has solved the task, and its third command finds no machine any more."""

    async with cloud(name, tmp_path, monkeypatch) as there:

        def before_reply(turn: int) -> None:
            if turn == 2:
                there.faults.add(fault, "exec")

        replies = [REPLIES[4], REPLIES[0], REPLIES[2], REPLIES[-1]]
        variables = {"SWE_SANDBOX": name, **there.environment}
        row = await roll(tmp_path, model_dir, variables, replies=replies, before_reply=before_reply)
        assert there.faults.spent and not there.server.machines
    assert (row["outcome"], row["exit_status"], row["reward"], row["grade"]) == ("aborted", status, None, None)
    assert row["samples"] == [] and len(row["turns"]) == 3
    assert row["message"].startswith("agent: Sandbox")
