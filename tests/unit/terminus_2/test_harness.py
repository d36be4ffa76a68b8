"""The agent over a real terminal in a real sandbox, against a scripted model."""

import json

import pytest
from chat_server import ChatServer

from agentrl.api import AgentEnd, HarnessJob
from agentrl_terminus_2.harness import Terminus2
from agentrl_terminus_2.settings import Terminus2Settings


def job(server: ChatServer, **changes) -> HarnessJob:
    values = {
        "rollout_id": "r",
        "problem": "Write hello into a.txt.",
        "workdir": "/tmp",
        "base_url": server.url,
        "api_key": "key",
        "model": "m",
        "max_turns": 0,
        "time_budget_sec": 600.0,
        "turn_timeout_sec": 300.0,
        "context_tokens": 1000,
    }
    return HarnessJob(**{**values, **changes})


def say(*keys: str, done: bool = False, duration: float = 0.1) -> str:
    commands = [{"keystrokes": k, "duration": duration} for k in keys]
    return json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": done})


LOOK = say("")
NEW = "New Terminal Output:"


def outputs(request) -> list[str]:
    """What a model was told that is new in its terminal, message by message."""
    answers = (message["content"] for message in request["messages"][1:] if message["role"] == "user")
    return [answer.partition(f"{NEW}\n")[2] for answer in answers if NEW in answer]


def shown(*lines: str, look: str = LOOK):
    """A reply that only looks, until these lines were in the terminal."""
    return lambda request: None if {*lines} <= {*"\n".join(outputs(request)).splitlines()} else look


@pytest.fixture
def harness():
    return Terminus2(Terminus2Settings())


async def run(harness, sandbox, replies, **changes):
    async with ChatServer(replies) as server:
        result = await harness.run(sandbox, job(server, **changes))
    return result, server


async def test_keys_are_typed_and_completion_is_confirmed(sandbox, harness):
    replies = [say("echo hello > a.txt\n", "cat a.txt\n"), shown("hello"), say(done=True), say(done=True)]
    result, server = await run(harness, sandbox, replies)
    assert result.end is AgentEnd.FINISHED
    assert await sandbox.read_file("/tmp/a.txt") == b"hello\n"
    opening, *_, asked = (request["messages"][-1]["content"] for request in server.requests)
    assert "Write hello into a.txt." in opening
    assert "Current Terminal Screen:" in opening
    assert "Are you sure you want to mark the task as complete?" in asked


async def test_the_models_own_words_are_echoed_verbatim(sandbox, harness):
    odd = "\n  " + say("true\n") + " \n\n"
    _, server = await run(harness, sandbox, [odd, say(done=True), say(done=True)])
    assert server.requests[1]["messages"][1] == {"role": "assistant", "content": odd}


async def test_a_turn_that_does_not_claim_completion_resets_the_claim(sandbox, harness):
    replies = [say(done=True), say("true\n"), say(done=True), say(done=True)]
    result, server = await run(harness, sandbox, replies)
    assert result.end is AgentEnd.FINISHED
    assert len(server.requests) == 4


async def test_an_unreadable_reply_runs_nothing_and_is_told_why(sandbox, harness):
    result, server = await run(harness, sandbox, ["touch /tmp/oops", say(done=True), say(done=True)])
    assert (
        "Previous response had parsing errors:\nERROR: No valid JSON" in server.requests[1]["messages"][-1]["content"]
    )
    assert result.details["parse_errors"] == 1


async def test_warnings_stand_before_the_output(sandbox, harness):
    replies = ["So: " + say("echo hi\n"), say(done=True), say(done=True)]
    _, server = await run(harness, sandbox, replies)
    warnings, screen = server.requests[1]["messages"][-1]["content"].split("\n\n", 1)
    assert warnings == "Previous response had warnings:\nWARNINGS: - Extra text detected before JSON object"
    assert screen.startswith((NEW, "Current Terminal Screen:"))


async def test_keys_longer_than_a_tmux_command_arrive_whole(sandbox, harness):
    text = "x" * 3000
    keys = "cat > big.txt <<'END'\n" + (text + "\n") * 20 + "END\necho written\n"
    await run(harness, sandbox, [say(keys), shown("written"), say(done=True), say(done=True)])
    assert await sandbox.read_file("/tmp/big.txt") == ((text + "\n") * 20).encode()


async def test_output_that_left_the_screen_is_shown(sandbox, harness):
    replies = [say("seq -f line-%g 300\n"), shown("line-1", "line-300"), say(done=True), say(done=True)]
    result, _ = await run(harness, sandbox, replies)
    assert result.end is AgentEnd.FINISHED


async def test_special_keys_reach_the_program(sandbox, harness):
    hanging = "sh -c 'echo hanging; exec sleep 4321'\n"
    replies = [say(hanging), shown("hanging"), say("C-c", "echo back\n"), shown("back"), say(done=True), say(done=True)]
    result, _ = await run(harness, sandbox, replies)
    assert result.end is AgentEnd.FINISHED


async def test_an_agent_that_ends_its_shell_has_finished(sandbox, harness):
    result, _ = await run(harness, sandbox, [say("exit\n"), lambda _: LOOK])
    assert result.end is AgentEnd.FINISHED
    assert "shell has ended" in result.message


async def test_turns_are_counted(sandbox, harness):
    result, server = await run(harness, sandbox, [say("true\n", duration=0)] * 3, max_turns=3)
    assert result.end is AgentEnd.TURN_BUDGET
    assert len(server.requests) == 3


async def test_cut_replies_execute_nothing_and_are_bounded(sandbox, harness):
    cut = {"content": say("touch /tmp/cut\n")[:-3], "finish_reason": "length"}
    result, server = await run(harness, sandbox, [cut] * 20, max_turns=0)
    assert result.end is AgentEnd.TOKEN_BUDGET
    assert len(server.requests) == 5
    assert "NONE of the actions" in server.requests[1]["messages"][-1]["content"]


async def test_a_full_context_ends_the_work(sandbox, harness):
    result, _ = await run(harness, sandbox, [say("true\n"), {"status": 400, "code": "context_length_exceeded"}])
    assert result.end is AgentEnd.CONTEXT_BUDGET


async def test_with_summaries_a_full_context_starts_a_fresh_conversation(sandbox):
    harness = Terminus2(Terminus2Settings(summarize=True))
    full = {"status": 400, "code": "context_length_exceeded"}
    replies = [say("true\n"), full, full, "the summary", "my questions", "the answers", say(done=True), say(done=True)]
    result, server = await run(harness, sandbox, replies)
    assert result.end is AgentEnd.FINISHED
    assert result.details["summaries"] == 1
    roles = [message["role"] for message in server.requests[6]["messages"]]
    assert roles == ["user", "user", "assistant", "user"]
    texts = [message["content"] for message in server.requests[6]["messages"]]
    assert "the summary" in texts[1]
    assert texts[2] == "my questions"
    assert "the answers" in texts[3]


async def test_xml_is_the_other_format(sandbox):
    harness = Terminus2(Terminus2Settings(parser="xml"))
    work = "<response><analysis>a</analysis><plan>p</plan><commands>{}</commands>{}</response>"
    done = work.format("", "<task_complete>true</task_complete>")
    write = work.format('<keystrokes duration="0.1">echo "<&>" > x.txt; cat x.txt\n</keystrokes>', "")
    look = work.format('<keystrokes duration="0.1"></keystrokes>', "")
    result, server = await run(harness, sandbox, [write, shown("<&>", look=look), done, done])
    assert result.end is AgentEnd.FINISHED
    assert await sandbox.read_file("/tmp/x.txt") == b"<&>\n"
    assert "<response>" in server.requests[0]["messages"][0]["content"]
