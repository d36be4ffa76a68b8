"""``agentrl eval`` end to end: a real agent in real sandboxes, with a model behind somebody else's API."""

from __future__ import annotations

import asyncio
import json

import pytest
from repair import BREAK, FIX, SUBMIT, repair_row
from upstream_server import UpstreamServer

from agentrl.cli.app import main


@pytest.fixture
def evaluate(tmp_path, local_state, monkeypatch, capsys):
    for name, value in {
        "AGENTRL_RUN_DIR": str(tmp_path / "runs"),
        "SWE_LOCAL_STATE_DIR": str(local_state),
        "SWE_CONCURRENCY": "1",
        "SWE_MINI_DEMONSTRATION": "false",
        "AGENTRL_REMOTE_MODEL": "big",
        "COLUMNS": "200",
    }.items():
        monkeypatch.setenv(name, value)
    data = tmp_path / "tasks.jsonl"
    data.write_text("".join(json.dumps(repair_row(name)) + "\n" for name in ("one", "two")))
    (tmp_path / "key").write_text("secret\n")

    async def run(server, *words, api="openai", data=str(data)):
        url = server.url + ("/v1" if api == "openai" else "")
        settings = [f"AGENTRL_ENGINE={api}:{url}", f"AGENTRL_REMOTE_API_KEY_FILE={tmp_path / 'key'}"]

        def command():
            with pytest.raises(SystemExit) as ended:
                main(["eval", data, *settings, *words])
            return ended.value.code or 0

        code = await asyncio.to_thread(command)
        return code, *capsys.readouterr()

    return run


def results(tmp_path):
    [path] = tmp_path.glob("runs/eval-*/eval.json")
    return path.parent, json.loads(path.read_text())


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_pass_at_k_of_any_model(evaluate, tmp_path, api):
    # One attempt after the other: task one is solved in its second attempt, task two never.
    replies = [BREAK, SUBMIT, FIX, SUBMIT, BREAK, SUBMIT, BREAK, SUBMIT]
    async with UpstreamServer(replies) as server:
        code, out, err = await evaluate(server, "-n", "2", api=api)
        assert code == 0, err
        [key] = {headers.get("Authorization", headers.get("x-api-key")) for headers, _ in server.requests}
    assert key in ("Bearer secret", "secret")
    directory, found = results(tmp_path)
    assert found["pass_at_k"]["1"]["value"] == 0.25
    assert found["pass_at_k"]["2"]["value"] == 0.5
    assert (found["model"], found["graded"]) == ("big", 4)
    assert "0.250" in out and "level-1, k = 2" in out
    assert all("secret" not in file.read_text() for file in directory.iterdir() if file.is_file())


async def test_an_interrupted_evaluation_goes_on(evaluate, tmp_path):
    async with UpstreamServer([FIX, SUBMIT, 401]) as server:
        code, _, err = await evaluate(server)
    assert code == 0, err  # half of the attempts may abort
    directory, found = results(tmp_path)
    assert (found["graded"], found["exit_status"].get("solved")) == (1, 1)

    async with UpstreamServer([BREAK, SUBMIT]) as server:
        code, _, err = await evaluate(server, "--resume", directory.name, data="AGENTRL_TEMPERATURE=1")
        assert (code, len(server.requests)) == (0, 2), err
    _, found = results(tmp_path)
    assert (found["graded"], found["pass_at_k"]["1"]["value"]) == (2, 0.5)


async def test_other_tasks_are_another_evaluation(evaluate, tmp_path):
    async with UpstreamServer([FIX, SUBMIT]) as server:
        await evaluate(server)
        directory, _ = results(tmp_path)
        (tmp_path / "other.jsonl").write_text(json.dumps(repair_row("three")) + "\n")
        code, _, err = await evaluate(server, "--resume", directory.name, data=str(tmp_path / "other.jsonl"))
    assert code == 2 and "other tasks" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["AGENTRL_REMOTE_MODEL="], "AGENTRL_REMOTE_MODEL is not set"),
        (["AGENTRL_REMOTE_API_KEY_FILE=/nowhere"], "no such file"),
        (["--k", "3"], "--k 3"),
        (["--k", "x"], "--k x"),
    ],
)
async def test_what_cannot_work_is_said_before_anything_is_paid_for(evaluate, tmp_path, words, message):
    async with UpstreamServer([SUBMIT]) as server:
        code, _, err = await evaluate(server, *words)
        assert (code, server.requests) == (2, [])
    assert message in err
    assert not (tmp_path / "runs").exists()
