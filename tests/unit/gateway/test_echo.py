from __future__ import annotations

from agentrl.gateway.echo import Echo
from agentrl.types import Message, Text, Thinking, ToolCall, ToolResult


def spelled(echo: Echo, *messages: Message) -> list[object]:
    return [said for _, said in echo.spelled(messages)]


def assistant(*blocks: Text | Thinking | ToolCall) -> Message:
    return Message("assistant", blocks)


def test_a_call_is_found_by_its_id_whatever_became_of_the_rest():
    echo = Echo()
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{ "b":1, "a":2 }'}, "index": 0}
    said = {"role": "assistant", "content": " hm ", "reasoning_content": "why", "tool_calls": [call], "refusal": None}
    echo.remember(assistant(Thinking("why"), Text(" hm "), ToolCall("c1", "bash", {"b": 1, "a": 2})), said)
    given_back = assistant(ToolCall("c1", "bash", {"a": 2, "b": 1}))
    result = Message("tool", (ToolResult("c1", "done"),))
    [first, second] = spelled(echo, given_back, result)
    assert first == {"role": "assistant", "content": " hm ", "reasoning_content": "why", "tool_calls": [call]}
    assert second is None


def test_turns_with_one_text_keep_their_order():
    echo = Echo()
    for thought in ("first", "second"):
        echo.remember(assistant(Text("ok\n")), {"content": "ok\n", "reasoning_content": thought})
    user = Message("user", (Text("go on"),))
    found = spelled(echo, assistant(Text("ok")), user, assistant(Text("ok")))
    assert [said and said["reasoning_content"] for said in found] == ["first", None, "second"]


def test_what_the_model_never_said_is_left_to_the_caller():
    assert spelled(Echo(), assistant(Text("a worked example"))) == [None]
