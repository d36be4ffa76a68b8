"""A client of OpenAI- and Anthropic-compatible APIs, in canonical form: a request in, an answer out.

Busy servers and broken connections are retried here: an answer that never came is asked for again, since nothing of it is
recorded. Not here: sessions and budgets (:mod:`agentrl.gateway.relay`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import aiohttp

from agentrl.errors import BudgetExhausted, ContextOverflow, EngineError, EngineUnavailable
from agentrl.gateway.dialects.content import arguments_of
from agentrl.gateway.echo import Echo
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.sampler import SILENCE
from agentrl.gateway.wire import dumps, scrub
from agentrl.types import Block, ChatRequest, Finish, Message, Text, Thinking, ToolCall, ToolResult, Usage

Api = Literal["openai", "anthropic"]

ATTEMPTS = 6
_BUSY = {408, 409, 429, 500, 502, 503, 504, 529}
_TOO_LONG = ("context_length_exceeded", "prompt is too long", "maximum context length", "model's context length")
_FINISH: Mapping[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said; ``message`` has a visible block."""

    message: Message
    finish: Finish
    usage: Usage


class Upstream:
    """``model`` at ``url``, the API's root as its own SDK takes it (``https://…/v1`` for OpenAI, without ``/v1`` for
    Anthropic). ``sleep`` waits between attempts. Must be used inside one running event loop.

    ``pinned`` is for one conversation with an OpenAI-compatible server that keeps its tokens: these parameters go with every request,
    turns go back word for word, and a reply that was cut off is the last one, since nothing after it would be trained.
    """

    def __init__(
        self,
        api: Api,
        url: str,
        *,
        model: str,
        key: str,
        timeout_sec: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        pinned: Mapping[str, Any] | None = None,
    ) -> None:
        self._api, self._model, self._key, self._sleep, self._pinned = api, model, key, sleep, pinned
        self._echo, self._cut_off = Echo(), False
        self._url = url.rstrip("/") + ("/chat/completions" if api == "openai" else "/v1/messages")
        self._timeout = aiohttp.ClientTimeout(total=timeout_sec)
        self._http: aiohttp.ClientSession | None = None

    async def ask(self, request: ChatRequest, max_new_tokens: int, sampling: SamplingPolicy) -> Answer:
        """Ask until there is an answer. Raises: ContextOverflow, EngineUnavailable (busy for long), EngineError."""
        if self._pinned is not None:
            return await self._converse(request, max_new_tokens)
        encode, decode = (_openai, _said_by_openai) if self._api == "openai" else (_anthropic, _said_by_anthropic)
        body = {"model": self._model, **encode(request, max_new_tokens), **_sampling(sampling)}
        answer = await self._post(body)
        try:
            return decode(answer)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineError(f"{self._url} answered something that is no {self._api} reply: {error!r}") from error

    async def _converse(self, request: ChatRequest, max_new_tokens: int) -> Answer:
        """One turn of the conversation whose tokens the other side keeps. Raises: BudgetExhausted too."""
        if self._cut_off:
            raise BudgetExhausted("token", "the last reply was cut off at its cap of tokens: nothing can follow it")
        assert self._pinned is not None, "only a pinned upstream has one conversation"
        cap = min(max_new_tokens, int(self._pinned.get("max_tokens") or max_new_tokens))
        encoded = _openai(request, cap)
        del encoded["max_completion_tokens"]
        encoded["messages"] = [
            entry
            for message, said in self._echo.spelled(request.messages)
            for entry in ([dict(said)] if said else _openai_messages(message))
        ]
        answer = await self._post({**encoded, **self._pinned, "model": self._model, "max_tokens": cap})
        try:
            reply = _said_by_openai(answer)
            self._echo.remember(reply.message, answer["choices"][0]["message"])
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineError(f"{self._url} answered something that is no openai reply: {error!r}") from error
        self._cut_off = reply.finish == "length"
        return reply

    async def aclose(self) -> None:
        """Close connections; idempotent."""
        if self._http is not None:
            await self._http.close()

    async def _post(self, body: Mapping[str, Any]) -> Any:
        raw, problem = dumps(body), ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._sleep(random.uniform(0.5, 1.0) * min(60.0, 2.0**attempt))
            try:
                async with self._session().post(self._url, data=raw) as http:
                    text = await http.text(errors="replace")
                    if http.status == 200:
                        return await http.json(content_type=None)
                    problem = f"{self._url} answered HTTP {http.status}: {text[:500]}"
                    if http.status not in _BUSY:
                        raise _refusal(problem)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                problem = f"{self._url} cannot be reached: {error!r}"
        raise EngineUnavailable(problem)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            headers = {"Content-Type": "application/json"}
            if self._api == "anthropic":
                headers |= {"anthropic-version": "2023-06-01"} | ({"x-api-key": self._key} if self._key else {})
            elif self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._http = aiohttp.ClientSession(headers=headers, timeout=self._timeout)
        return self._http


def _refusal(problem: str) -> Exception:
    """A prompt that is too long ends an agent as any full context does; its length is not known here."""
    if any(sign in problem for sign in _TOO_LONG):
        return ContextOverflow(0, 0)
    return EngineError(problem)


def _sampling(sampling: SamplingPolicy) -> dict[str, Any]:
    """Only what differs from the APIs' own default: several models refuse these parameters."""
    wanted: dict[str, Any] = {}
    if sampling.temperature != 1.0:
        wanted["temperature"] = sampling.temperature
    if sampling.top_p != 1.0:
        wanted["top_p"] = sampling.top_p
    return wanted


# ---------------------------------------------------------------------------------------------------- OpenAI


def _openai(request: ChatRequest, max_new_tokens: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [entry for message in request.messages for entry in _openai_messages(message)],
        "max_completion_tokens": max_new_tokens,
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in request.tools
        ]
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def _openai_messages(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        results = (b for b in message.blocks if isinstance(b, ToolResult))
        return [{"role": "tool", "tool_call_id": b.call_id, "content": b.text} for b in results]
    text = "\n".join(b.text for b in message.blocks if isinstance(b, Text))
    calls = [
        {"id": b.id, "type": "function", "function": {"name": b.name, "arguments": dumps(b.arguments).decode()}}
        for b in message.blocks
        if isinstance(b, ToolCall)
    ]
    if calls:
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    return [{"role": message.role, "content": text}]


def _said_by_openai(answer: Any) -> Answer:
    choice, usage = answer["choices"][0], answer.get("usage") or {}
    said = choice["message"]
    blocks: list[Block] = []
    if thought := said.get("reasoning_content") or said.get("reasoning"):
        blocks.append(Thinking(str(thought)))
    if text := said.get("content"):
        blocks.append(Text(str(text)))
    for call in said.get("tool_calls") or ():
        function = call["function"]
        blocks.append(ToolCall(str(call["id"]), str(function["name"]), arguments_of(function.get("arguments"))))
    used = Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
    return _answer(blocks, choice.get("finish_reason"), used)


# ------------------------------------------------------------------------------------------------- Anthropic


def _anthropic(request: ChatRequest, max_new_tokens: int) -> dict[str, Any]:
    system = "\n\n".join(m.text for m in request.messages if m.role == "system")
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        parts = [part for block in message.blocks if (part := _anthropic_part(block))]
        # Results of tools and what the user says next are one message there.
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += parts
        else:
            messages.append({"role": role, "content": parts})
    body: dict[str, Any] = {"messages": messages, "max_tokens": max_new_tokens}
    if system:
        body["system"] = system
    if request.tools:
        body["tools"] = [
            {"name": t.name, "description": t.description, "input_schema": {"type": "object", **t.parameters}}
            for t in request.tools
        ]
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    return body


def _anthropic_part(block: Block) -> dict[str, Any] | None:
    match block:
        case Text():
            return {"type": "text", "text": block.text} if block.text.strip() else None
        case Thinking():
            signed = {"type": "thinking", "thinking": block.text, "signature": block.signature}
            return signed if block.signature else None
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": dict(block.arguments)}
        case ToolResult():
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.call_id, "content": block.text}
            return {**result, "is_error": True} if block.is_error else result


def _said_by_anthropic(answer: Any) -> Answer:
    blocks: list[Block] = []
    for part in answer["content"]:
        match part.get("type"):
            case "text":
                blocks.append(Text(str(part["text"])))
            case "thinking":
                blocks.append(Thinking(str(part["thinking"]), str(part.get("signature") or "")))
            case "tool_use":
                blocks.append(ToolCall(str(part["id"]), str(part["name"]), arguments_of(part.get("input"))))
    usage = answer.get("usage") or {}
    cached = int(usage.get("cache_read_input_tokens") or 0) + int(usage.get("cache_creation_input_tokens") or 0)
    used = Usage(int(usage.get("input_tokens") or 0) + cached, int(usage.get("output_tokens") or 0))
    return _answer(blocks, answer.get("stop_reason"), used)


def _answer(blocks: list[Block], finish: object, usage: Usage) -> Answer:
    if not any(isinstance(b, ToolCall) or (isinstance(b, Text) and b.text.strip()) for b in blocks):
        blocks = [*(b for b in blocks if not isinstance(b, Text)), Text(SILENCE)]
    cleaned = [replace(b, text=scrub(b.text)) if isinstance(b, Text | Thinking) else b for b in blocks]
    return Answer(Message("assistant", tuple(cleaned)), _FINISH.get(str(finish), "stop"), usage)
