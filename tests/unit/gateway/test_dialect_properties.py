"""What holds for every reply in every API: a stream says what a whole reply says, and a client that sends it back is understood.

The official SDKs are the clients, over bytes that they get without a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrl.dialect import Dialect
from agentrl.gateway.dialects.anthropic import AnthropicMessages
from agentrl.gateway.dialects.openai_chat import OpenAIChat
from agentrl.gateway.dialects.openai_responses import OpenAIResponses
from agentrl.gateway.wire import dumps, loads_object, scrub
from agentrl.tokens.forest import Forest
from agentrl.types import Block, ChatRequest, Generation, Message, Reply, Text, Thinking, Tool, ToolCall, Usage

TOOLS = (
    Tool("bash", "Run", {"type": "object", "properties": {"cmd": {"type": "string"}}}),
    Tool("patch", "Edit", {"type": "object", "properties": {"input": {"type": "string"}}}, freeform=True),
)

# ---------------------------------------------------------------------------------------------------- replies

anything = st.text(st.characters(exclude_categories=()), max_size=20)
words = anything.filter(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
objects = st.dictionaries(anything, values, max_size=3)
# What a tool of bare text is given otherwise has no place in the API that has such tools.
bare = anything.map(lambda text: ToolCall("", "patch", {"input": text}))
calls = bare | st.builds(lambda name, given: ToolCall("", name, given), st.sampled_from(["bash", "Näme"]), objects)
texts = st.builds(Text, words)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """A reply as the gateway makes it: reasoning first if at all, something visible, call ids of its own."""
    thought = draw(st.none() | st.builds(Thinking, words))
    blocks: list[Block] = [*([thought] if thought else []), *draw(st.lists(texts | calls, min_size=1, max_size=5))]
    numbered = [replace(b, id=f"minted-{i}") if isinstance(b, ToolCall) else b for i, b in enumerate(blocks)]
    finish = draw(st.sampled_from(["stop", "length", "tool_calls"]))
    usage = Usage(draw(st.integers(1, 9999)), draw(st.integers(1, 9999)))
    return Reply(Message("assistant", tuple(numbered)), finish, usage, "turn", "policy", TOOLS)


def clean(message: Message) -> Message:
    """``message`` without lone surrogates: JSON has none."""
    return Message(message.role, tuple(_clean(block) for block in message.blocks))


def _clean(block: Block) -> Block:
    if isinstance(block, ToolCall):
        return replace(block, arguments=scrub(block.arguments))
    return replace(block, text=scrub(block.text))


def together(message: Message) -> Message:
    """``message`` as Chat Completions can say it: one text, then the calls."""
    thoughts = [b for b in message.blocks if isinstance(b, Thinking)]
    said = [b.text for b in message.blocks if isinstance(b, Text)]
    made = [b for b in message.blocks if isinstance(b, ToolCall)]
    return Message("assistant", (*thoughts, *([Text("\n".join(said))] if said else []), *made))


# ------------------------------------------------------------------------------------------------------- the APIs


@dataclass(frozen=True)
class Api:
    """One API: what the SDK makes of a whole reply and of a stream, how a client sends a reply back, and what it can say."""

    dialect: Dialect
    whole: Callable[[Any], Any]
    stream: Callable[[Any], Any]
    history: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    sayable: Callable[[Message], Message] = lambda message: message
    client: Callable[..., Any] = openai.OpenAI
    network: Any = httpx

    def ask(self, reply: Reply, *, streamed: bool) -> dict[str, Any]:
        """What the official SDK returns when the server sends ``reply``."""

        def serve(_request: Any) -> Any:
            if streamed:
                body = b"".join(self.dialect.events(reply))
                return self.network.Response(200, content=body, headers={"content-type": "text/event-stream"})
            return self.network.Response(
                200, content=dumps(self.dialect.reply(reply)), headers={"content-type": "application/json"}
            )

        with self.network.Client(transport=self.network.MockTransport(serve)) as http:
            client = self.client(api_key="key", base_url="http://gateway", http_client=http, max_retries=0)
            answer = (self.stream if streamed else self.whole)(client)
        return _timeless(json.loads(answer.to_json(exclude_none=True)))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        clock = ("created", "created_at", "completed_at")
        return {key: _timeless(item) for key, item in value.items() if key not in clock}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


USER: Any = [{"role": "user", "content": "go"}]
MORE: Any = [{"role": "user", "content": "on"}]
MESSAGES = {"model": "policy", "max_tokens": 99, "messages": USER}
CHAT = {"model": "policy", "messages": USER}
RESPONSES = {"model": "policy", "input": USER}


def _accumulated(client: anthropic.Anthropic) -> Any:
    with client.messages.stream(**MESSAGES) as stream:
        return stream.get_final_message()


def _chunks(client: openai.OpenAI) -> Any:
    """The chunks put together."""
    with client.chat.completions.create(**CHAT, stream=True) as stream:
        chunks = [chunk.model_dump(exclude_none=True) for chunk in stream]
    message: dict[str, Any] = {"role": "assistant"}
    for delta in (chunk["choices"][0]["delta"] for chunk in chunks):
        message |= {key: delta[key] for key in ("content", "reasoning_content") if key in delta}
        made = [{key: call[key] for key in call if key != "index"} for call in delta.get("tool_calls", ())]
        message["tool_calls"] = [*message.get("tool_calls", ()), *made]
    if not message["tool_calls"]:
        del message["tool_calls"]
    last = chunks[-1]
    choice = {"index": 0, "message": message, "finish_reason": last["choices"][0]["finish_reason"]}
    whole = {**last, "object": "chat.completion", "choices": [choice]}
    return openai.types.chat.ChatCompletion.model_validate(whole)


def _items(client: openai.OpenAI) -> Any:
    """The last response, its output put together from the deltas."""
    output: list[dict[str, Any]] = []
    with client.responses.create(**RESPONSES, stream=True) as stream:
        for event in (event.model_dump(exclude_none=True) for event in stream):
            match event["type"].removeprefix("response.").split("."):
                case ["output_item", "added"]:
                    output.append(event["item"])
                case ["output_item", "done"]:
                    output[-1]["status"] = event["item"]["status"]
                case ["content_part", "added"]:
                    output[-1]["content"].append(event["part"])
                case ["function_call_arguments", "delta"]:
                    output[-1]["arguments"] += event["delta"]
                case ["custom_tool_call_input", "delta"]:
                    output[-1]["input"] += event["delta"]
                case [_, "delta"]:
                    output[-1]["content"][-1]["text"] += event["delta"]
    return openai.types.responses.Response.model_validate({**event["response"], "output": output})


APIS = {
    "anthropic": Api(
        AnthropicMessages(),
        lambda c: c.messages.create(**MESSAGES),
        _accumulated,
        lambda sent: {"messages": [*USER, {"role": "assistant", "content": sent["content"]}, *MORE]},
        client=anthropic.Anthropic,
        network=httpx2,
    ),
    "chat": Api(
        OpenAIChat(),
        lambda c: c.chat.completions.create(**CHAT),
        _chunks,
        lambda sent: {"messages": [*USER, sent["choices"][0]["message"], *MORE]},
        sayable=together,
    ),
    "responses": Api(
        OpenAIResponses(),
        lambda c: c.responses.create(**RESPONSES),
        _items,
        lambda sent: {"input": [*USER, *sent["output"], *MORE]},
    ),
}
every_api = pytest.mark.parametrize("name", APIS)
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sent_back(api: Api, sent: Mapping[str, Any]) -> ChatRequest:
    """The next request, as it arrives."""
    return api.dialect.read(loads_object(json.dumps(api.history(sent)).encode()))


# --------------------------------------------------------------------------------------------------- the properties


@every_api
@many
@given(reply=replies())
def test_a_stream_says_what_a_whole_reply_says(name, reply):
    api = APIS[name]
    assert api.ask(reply, streamed=True) == api.ask(reply, streamed=False)


@every_api
@many
@given(reply=replies(), streamed=st.booleans())
def test_a_reply_that_is_sent_back_reads_as_the_equal_message(name, reply, streamed):
    api = APIS[name]
    request = sent_back(api, api.ask(reply, streamed=streamed))
    assert request.messages == (
        Message("user", (Text("go"),)),
        api.sayable(clean(reply.message)),
        Message("user", (Text("on"),)),
    )


@every_api
@many
@given(reply=replies(), kept=st.booleans())
def test_a_reply_that_is_sent_back_is_found_again(name, reply, kept):
    """By its call ids or, where a client makes up ids of its own, by what it says."""
    api, forest = APIS[name], Forest()
    first = ChatRequest("policy", (Message("user", (Text("go"),)),))
    turn_id = forest.begin(forest.place(first))
    generation = Generation("r", (1,), (-0.5,), "stop")
    stored = clean(reply.message)
    forest.commit(turn_id, new_ids=(7,), generation=generation, reply=stored, started_at=0.0, duration_sec=0.0)
    sent = json.dumps(api.ask(reply, streamed=False))
    placement = forest.place(sent_back(api, json.loads(sent if kept else sent.replace("minted-", "theirs-"))))
    assert (placement.parent_id, placement.fork_reason) == (turn_id, "")
    assert placement.new == (Message("user", (Text("on"),)),)
