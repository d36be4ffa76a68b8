"""A gateway with real edges (HTTP on both sides) around a codec that one can read with the naked eye."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from agentrl.gateway.dialects.anthropic import AnthropicMessages
from agentrl.gateway.dialects.openai_chat import OpenAIChat
from agentrl.gateway.dialects.openai_responses import OpenAIResponses
from agentrl.gateway.engine import SGLangEngine
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.server import Gateway
from agentrl.gateway.session import Budgets, Session
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl.tokens.codec import Parsed, Rendered
from agentrl.types import Message, Text, Thinking, Tool, ToolCall, ToolResult, Turn

STOP = 2_000_000
OPEN = {"system": 2_000_001, "user": 2_000_002, "assistant": 2_000_003, "tool": 2_000_004}
PAIR = 4_000_000
_MARKUP = re.compile(r"<think>(.*?)</think>|<call (\w+) (\{.*?\})>", re.DOTALL)


class PlainCodec:
    """One id per character, control ids around messages; ``PAIR + ...`` ids spell two characters at once, so that the same
    text has several spellings, as with every real tokenizer."""

    name = "plain"
    stop_token_ids = (STOP,)

    def __init__(self) -> None:
        self.stable = True

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Rendered:
        head = [ord(c) for t in tools for c in f"[{t.name}]"]
        return Rendered((*head, *self._messages(messages)))

    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Tool],
        *,
        closed: bool,
        last_id: int | None = None,
    ) -> Rendered | None:
        assert (last_id == STOP) == closed
        if not self.stable:
            return None
        return Rendered((*(() if closed else (STOP,)), *self._messages(new)))

    def parse(self, ids: Sequence[int], tools: Sequence[Tool], mint: Callable[[], str]) -> Parsed:
        text, blocks, at = self.text(ids), [], 0
        for found in _MARKUP.finditer(text):
            blocks.append(Text(text[at : found.start()]))
            thought, name, arguments = found.groups()
            blocks.append(Thinking(thought) if name is None else ToolCall(mint(), name, json.loads(arguments)))
            at = found.end()
        blocks.append(Text(text[at:]))
        return Parsed(Message("assistant", tuple(b for b in blocks if not (isinstance(b, Text) and not b.text))))

    def probe(self) -> Any:
        raise NotImplementedError

    def spell(self, text: str, *, pairs: bool = False, stop: bool = True) -> list[int]:
        """Ids for ``text``; ``pairs``: the spelling that encoding never gives."""
        ids = [ord(c) for c in text]
        if pairs:
            ids = [PAIR + ord(a) * 1000 + ord(b) for a, b in zip(text[::2], text[1::2], strict=False)]
            ids += [ord(text[-1])] if len(text) % 2 else []
        return [*ids, STOP] if stop else ids

    def text(self, ids: Sequence[int]) -> str:
        return "".join(
            chr((i - PAIR) // 1000) + chr((i - PAIR) % 1000) if i >= PAIR else chr(i)
            for i in ids
            if i not in OPEN.values() and i != STOP
        )

    def _messages(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += [OPEN[message.role], *(ord(c) for b in message.blocks for c in _written(b)), STOP]
        return [*ids, OPEN["assistant"]]


def _written(block: Any) -> str:
    match block:
        case ToolCall():
            return f"<call {block.name} {json.dumps(dict(block.arguments))}>"
        case Thinking():
            return f"<think>{block.text}</think>"
        case Text() | ToolResult():
            return block.text
    raise AssertionError(block)


@dataclass
class Rig:
    """Everything that a test of the gateway talks to."""

    gateway: Gateway
    engine: ScriptedEngine
    codec: PlainCodec
    http: aiohttp.ClientSession
    stack: AsyncExitStack
    turns: list[tuple[str, Turn]] = field(default_factory=list)

    def open(self, rollout_id: str = "r1", **budgets: Any) -> Session:
        return self.gateway.open_session(rollout_id, Budgets(**budgets))

    def openai(self, session: Session, **options: Any) -> openai.AsyncOpenAI:
        options = {"max_retries": 0, **options}
        client = openai.AsyncOpenAI(base_url=session.url(self.gateway.url) + "/v1", api_key="unused", **options)
        self.stack.push_async_callback(client.close)
        return client

    def anthropic(self, session: Session, **options: Any) -> anthropic.AsyncAnthropic:
        options = {"max_retries": 0, **options}
        client = anthropic.AsyncAnthropic(base_url=session.url(self.gateway.url), api_key="unused", **options)
        self.stack.push_async_callback(client.close)
        return client

    async def post(self, session: Session, body: Any, path: str = "/v1/chat/completions") -> tuple[int, Any]:
        data = io.BytesIO(json.dumps(body).encode())
        async with self.http.post(session.url(self.gateway.url) + path, data=data) as response:
            return response.status, await response.json()


MakeRig = Callable[..., Any]


@pytest.fixture
async def make_rig() -> AsyncIterator[MakeRig]:
    """``await make_rig(script, **gateway options)``; a script gives texts or ids."""
    async with AsyncExitStack() as stack:

        async def make(script: Callable[[list[int], int], str | list[int]] | str = "hello", **options: Any) -> Rig:
            codec = PlainCodec()

            def ids(prompt: list[int], number: int) -> list[int]:
                said = script if isinstance(script, str) else script(prompt, number)
                return codec.spell(said) if isinstance(said, str) else said

            engine = await stack.enter_async_context(ScriptedEngine(ids, **options.pop("engine", {})))
            client = SGLangEngine(engine.url, timeout_sec=600)
            stack.push_async_callback(client.aclose)
            turns: list[tuple[str, Turn]] = []
            settings = {
                "sampling": SamplingPolicy(temperature=0.7, top_p=0.9, max_new_tokens=200),
                "dialects": (OpenAIChat(), AnthropicMessages(), OpenAIResponses()),
                "context_tokens": 10_000,
                "turn_timeout_sec": 600.0,
                "on_turn": lambda rollout, turn: turns.append((rollout, turn)),
                **options,
            }
            gateway = Gateway(codec=codec, engine=client, **settings)
            await gateway.start()
            stack.push_async_callback(gateway.aclose)
            http = await stack.enter_async_context(aiohttp.ClientSession())
            return Rig(gateway, engine, codec, http, stack, turns)

        yield make
