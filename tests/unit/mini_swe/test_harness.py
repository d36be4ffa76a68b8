"""The loop over a real sandbox, against a scripted model."""

import asyncio
import socket

import pytest
from chat_server import ChatServer
from leap import leap
from reserved import reserved_port

from agentrl.api import AgentEnd, EngineUnavailable, HarnessError, HarnessJob, SandboxGone
from agentrl_mini_swe.harness import MiniSwe
from agentrl_mini_swe.settings import MiniSweSettings

NO_SANDBOX = None
"""For runs in which the model asks for no command."""

SUBMIT = "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"


def bash(command: str) -> str:
    return f"```bash\n{command}\n```"


def job(base_url: str, **changes) -> HarnessJob:
    values = {
        "rollout_id": "r",
        "problem": "Write hello into a.txt.",
        "workdir": "/tmp",
        "base_url": base_url,
        "api_key": "key",
        "model": "m",
        "max_turns": 10,
        "time_budget_sec": 600.0,
        "turn_timeout_sec": 300.0,
        "context_tokens": 1000,
    }
    return HarnessJob(**{**values, **changes})


async def run(sandbox, replies, *, settings=None, **changes):
    harness = MiniSwe(MiniSweSettings(**(settings or {})))
    await harness.install(sandbox)
    async with ChatServer(replies) as server:
        result = await harness.run(sandbox, job(server.url, **changes))
    return result, server


def last_messages(server: ChatServer) -> list[str]:
    return [request["messages"][-1]["content"] for request in server.requests]


async def test_works_until_it_submits(sandbox):
    result, server = await run(sandbox, [bash("echo hello > a.txt; cat a.txt"), SUBMIT])
    assert result.end is AgentEnd.FINISHED
    assert result.details == {"turns": 2, "commands": 2, "parse_errors": 0}
    assert await sandbox.read_file("/tmp/a.txt") == b"hello\n"
    assert last_messages(server) == ["Write hello into a.txt.", "exit code 0\nhello"]
    assert server.authorizations == ["Bearer key"] * 2


async def test_a_request_only_ever_adds_to_the_one_before(sandbox):
    odd = "\n  I look.\n" + bash("pwd") + "\n \n"
    _, server = await run(sandbox, [odd, "no block", SUBMIT])
    first, second, third = (request["messages"] for request in server.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert second[len(first)] == {"role": "assistant", "content": odd}


async def test_the_demonstration_can_be_left_out():
    _, shown = await run(NO_SANDBOX, ["thinking"], max_turns=1)
    _, plain = await run(NO_SANDBOX, ["thinking"], max_turns=1, settings={"demonstration": False})
    assert [m["role"] for m in plain.requests[0]["messages"]] == ["system", "user"]
    roles = [m["role"] for m in shown.requests[0]["messages"]]
    assert roles == ["system", *["user", "assistant"] * (len(roles) // 2 - 1), "user"]
    assert len(roles) > 2


async def test_commands_run_in_the_workdir_and_each_in_its_own_shell(sandbox):
    replies = [bash("mkdir repo; cd repo; pwd"), bash("pwd; echo $?; ls missing"), SUBMIT]
    _, server = await run(sandbox, replies, workdir="/tmp")
    assert last_messages(server)[1] == "exit code 0\n/tmp/repo"
    code, folder, _, error = last_messages(server)[2].split("\n")
    assert (code, folder) == ("exit code 2", "/tmp")
    assert "missing" in error


async def test_errors_stand_between_the_lines_that_they_followed(sandbox):
    _, server = await run(sandbox, [bash("echo 1; echo 2 >&2; echo 3; exit 4"), bash("if"), SUBMIT])
    assert last_messages(server)[1] == "exit code 4\n1\n2\n3"
    assert "syntax error" in last_messages(server)[2]


async def test_a_reply_without_command_is_a_turn_and_is_told_why(sandbox):
    result, server = await run(sandbox, ["Let me think.", bash("ls") + "\n" + bash("pwd"), SUBMIT])
    assert result.details == {"turns": 3, "commands": 1, "parse_errors": 2}
    assert last_messages(server)[1].startswith("No bash block found.")


async def test_a_cut_reply_is_not_run(sandbox):
    cut = {"content": "```bash\ntouch /tmp/cut", "finish_reason": "length"}
    _, server = await run(sandbox, [cut, bash("ls /tmp/cut"), SUBMIT])
    assert "not closed" in last_messages(server)[1]
    assert last_messages(server)[2].startswith("exit code 2")


class Hasty:
    """A sandbox that is ``hurried`` by one word only: other commands may take as long as the machine likes. ``limits``: what was asked."""

    def __init__(self, sandbox, hurried: str):
        self._sandbox, self._hurried, self.limits = sandbox, hurried, set()

    async def exec(self, command, *, timeout_sec, **options):
        self.limits.add(timeout_sec)
        limit = timeout_sec if self._hurried in command else 600
        return await self._sandbox.exec(command, timeout_sec=limit, **options)


async def test_a_command_that_takes_too_long_is_killed_and_the_work_goes_on(sandbox):
    # What was killed may still be ending.
    gone = "while pgrep -f ^sleep >/dev/null; do sleep 0.02; done; echo gone"
    hasty, replies = Hasty(sandbox, "4321"), [bash("sleep 4321 & sleep 4321"), bash(gone), SUBMIT]
    result, server = await run(hasty, replies, settings={"command_timeout_sec": 0.5})
    assert (result.end, hasty.limits) == (AgentEnd.FINISHED, {0.5})
    assert last_messages(server)[1] == "timed out after 0.5 s and was killed\n(no output)"
    assert last_messages(server)[2] == "exit code 0\ngone"


async def test_a_long_output_is_shortened(sandbox):
    _, server = await run(sandbox, [bash("seq 100000"), SUBMIT], settings={"output_chars": 200})
    shown = last_messages(server)[1]
    assert len(shown) < 300
    assert shown.startswith("exit code 0\n1\n2\n")
    assert shown.endswith("\n100000")


async def test_a_submission_in_the_last_turn_counts(sandbox):
    result, _ = await run(sandbox, [bash("true"), SUBMIT], max_turns=2)
    assert result.end is AgentEnd.FINISHED


async def test_turns_run_out_after_the_last_command_has_run(sandbox):
    result, server = await run(sandbox, [bash("echo 1 >> a.txt")] * 3, max_turns=2)
    assert result.end is AgentEnd.TURN_BUDGET
    assert len(server.requests) == 2
    assert await sandbox.read_file("/tmp/a.txt") == b"1\n1\n"


async def test_no_limit_of_turns():
    refusal = {"status": 429, "code": "budget_exhausted", "param": "token"}
    result, _ = await run(NO_SANDBOX, [*["thinking"] * 12, refusal], max_turns=0)
    assert result.details["turns"] == 12


async def test_time_runs_out_while_a_command_runs(sandbox):
    working = run(
        sandbox, [bash("touch began; sleep 4321")], settings={"command_timeout_sec": 4000}, time_budget_sec=500
    )
    running = asyncio.create_task(working)
    await sandbox.exec("until [ -e /tmp/began ]; do sleep 0.02; done", timeout_sec=600)
    leap(500)
    result, _ = await running
    assert result.end is AgentEnd.TIME_BUDGET
    assert result.details["commands"] == 1


@pytest.mark.parametrize(
    ("refusal", "end"),
    [
        ({"status": 400, "code": "context_length_exceeded"}, AgentEnd.CONTEXT_BUDGET),
        ({"status": 429, "code": "budget_exhausted", "param": "turn"}, AgentEnd.TURN_BUDGET),
        ({"status": 429, "code": "budget_exhausted", "param": "token"}, AgentEnd.TOKEN_BUDGET),
        ({"status": 429, "code": "budget_exhausted", "param": "time"}, AgentEnd.TIME_BUDGET),
        ({"status": 410, "code": "session_closed"}, AgentEnd.TIME_BUDGET),
    ],
)
async def test_a_budget_that_ran_out_is_a_normal_end(refusal, end):
    result, _ = await run(NO_SANDBOX, ["thinking", refusal])
    assert result.end is end
    assert result.details["turns"] == 1


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_failing_engine_is_not_the_agents_end(status):
    with pytest.raises(EngineUnavailable, match=str(status)):
        await run(NO_SANDBOX, [{"status": status}])


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_request_that_the_gateway_rejects_is_the_harness_fault(status):
    with pytest.raises(HarnessError, match=str(status)):
        await run(NO_SANDBOX, [{"status": status, "code": "other"}])


async def test_a_gateway_that_cannot_be_reached():
    with reserved_port() as port:
        gone = f"http://127.0.0.1:{port}"
        with pytest.raises(EngineUnavailable, match="cannot be reached"):
            await MiniSwe(MiniSweSettings()).run(NO_SANDBOX, job(gone))


async def test_a_gateway_that_does_not_answer_in_time():
    with socket.create_server(("127.0.0.1", 0)) as never_accepts:
        url = f"http://127.0.0.1:{never_accepts.getsockname()[1]}"
        with pytest.raises(EngineUnavailable, match=r"within 0\.2 s"):
            await MiniSwe(MiniSweSettings()).run(NO_SANDBOX, job(url, turn_timeout_sec=0.2))


async def test_a_lost_machine_is_not_hidden(sandbox):
    await sandbox.close()
    with pytest.raises(SandboxGone):
        await run(sandbox, [bash("true")])
