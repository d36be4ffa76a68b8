"""OpenAI Responses (``/v1/responses`` and ``/v1/responses/input_tokens``), without state.

Nothing is stored: a client sends the whole conversation each time (``store: false``, as codex does). What refers to a stored one
is refused. How ``input`` and ``tools`` are read is in :mod:`agentrl.gateway.dialects.openai_items`.

Each block of a reply is an item of its own, in the order that it was sampled. A call of a freeform tool is written back as one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from agentrl.dialect import Route
from agentrl.errors import BadRequest
from agentrl.gateway.dialects.content import limit_at, list_at, string_at
from agentrl.gateway.dialects.errors import openai_error
from agentrl.gateway.dialects.openai_items import INPUT, messages_of, tools_of
from agentrl.gateway.wire import dumps
from agentrl.types import Block, ChatRequest, Message, Reply, Text, Thinking, ToolCall

_STATEFUL = ("previous_response_id", "conversation", "background", "prompt")


class OpenAIResponses:
    """Responses, streamed and not."""

    name = "openai_responses"
    routes: Sequence[Route] = (Route("/v1/responses", "chat"), Route("/v1/responses/input_tokens", "count_tokens"))

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """The request in canonical form. Raises: BadRequest."""
        for key in _STATEFUL:
            if body.get(key):
                raise BadRequest(f"{key}: nothing is stored here, send the whole conversation as input")
        instructions = string_at(body.get("instructions") or "", "instructions")
        system = (Message("system", (Text(instructions),)),) if instructions else ()
        return ChatRequest(
            model=string_at(body.get("model") or "", "model"),
            messages=(*system, *messages_of(body.get("input"))),
            tools=tools_of(list_at(body.get("tools"), "tools")),
            max_tokens=limit_at(body.get("max_output_tokens"), "max_output_tokens"),
            stream=body.get("stream") is True,
        )

    def reply(self, reply: Reply) -> Mapping[str, Any]:
        """The JSON of a non-streamed reply."""
        cut = reply.finish == "length"
        ended = {"incomplete_details": {"reason": "max_output_tokens"}} if cut else {"completed_at": int(time.time())}
        return {**_opening(reply), **ended, "status": _status(reply), "output": _items(reply), "usage": _usage(reply)}

    def events(self, reply: Reply) -> Iterable[bytes]:
        """The reply as numbered events: each item is added empty, filled, and done."""
        number = count()
        opening, whole = _opening(reply), self.reply(reply)
        yield _event("response.created", {"response": opening, "sequence_number": next(number)})
        yield _event("response.in_progress", {"response": opening, "sequence_number": next(number)})
        for index, item in enumerate(whole["output"]):
            for kind, fields in _item_events(item):
                yield _event(kind, {"output_index": index, **fields, "sequence_number": next(number)})
        yield _event(f"response.{_status(reply)}", {"response": whole, "sequence_number": next(number)})

    def ping(self) -> bytes:
        """A comment line."""
        return b": ping\n\n"

    def count(self, tokens: int) -> Mapping[str, Any]:
        """The JSON that answers ``input_tokens``."""
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def error_event(self, error: Exception) -> bytes:
        """An error inside a stream, said twice: SDKs raise what ``error`` says, codex reads ``response.failed``."""
        body = openai_error(error)[1]["error"]
        failed = {"id": "resp_failed", "object": "response", "status": "failed", "output": [], "error": body}
        said = _event("error", {"error": body, "sequence_number": 0})
        return said + _event("response.failed", {"response": failed, "sequence_number": 1})

    def error(self, error: Exception) -> tuple[int, Mapping[str, Any], Mapping[str, str]]:
        """(HTTP status, JSON body, extra headers)."""
        return openai_error(error)


# ---------------------------------------------------------------------------------------------------- a response


def _opening(reply: Reply) -> dict[str, Any]:
    """A response that has not said anything yet."""
    return {
        "id": f"resp_{reply.turn_id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish == "length" else "completed"


def _usage(reply: Reply) -> dict[str, Any]:
    prompt, completion = reply.usage.prompt, reply.usage.completion
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }


# ------------------------------------------------------------------------------------------------------- items

_EMPTY: Mapping[str, Mapping[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"content": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}


def _items(reply: Reply) -> list[dict[str, Any]]:
    """One item for each block; only the last can have been cut."""
    freeform = {tool.name for tool in reply.tools if tool.freeform}
    items = [
        {**_item(block, freeform), "id": f"item_{reply.turn_id}_{index}", "status": "completed"}
        for index, block in enumerate(reply.message.blocks)
    ]
    items[-1]["status"] = _status(reply)
    return items


def _item(block: Block, freeform: set[str]) -> dict[str, Any]:
    match block:
        case Thinking():
            content = [{"type": "reasoning_text", "text": block.text}]
            return {"type": "reasoning", "summary": [], "content": content, "encrypted_content": None}
        case ToolCall():
            call = {"call_id": block.id, "name": block.name}
            if block.name in freeform:
                return {"type": "custom_tool_call", **call, "input": _bare(block.arguments)}
            return {"type": "function_call", **call, "arguments": dumps(block.arguments).decode()}
    text = {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "content": [text]}


def _bare(arguments: Mapping[str, Any]) -> str:
    """The text for a freeform tool; arguments of any other shape go to it as they are, and it will say what it wants."""
    text = arguments.get(INPUT)
    return text if isinstance(text, str) and len(arguments) == 1 else dumps(arguments).decode()


def _item_events(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    empty = {**item, **_EMPTY[item["type"]], "status": "in_progress"}
    yield "response.output_item.added", {"item": empty}
    for kind, fields in _filling(item):
        yield kind, {"item_id": item["id"], **fields}
    yield "response.output_item.done", {"item": item}


def _filling(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What happens between the item's opening and its end."""
    match item["type"]:
        case "function_call":
            said = {"arguments": item["arguments"]}
            yield "response.function_call_arguments.delta", {"delta": item["arguments"]}
            yield "response.function_call_arguments.done", {**said, "name": item["name"]}
        case "custom_tool_call":
            yield "response.custom_tool_call_input.delta", {"delta": item["input"]}
            yield "response.custom_tool_call_input.done", {"input": item["input"]}
        case _:
            yield from _part_filling(item["content"][0])


def _part_filling(part: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The one part of a message or of reasoning."""
    at, text = {"content_index": 0}, part["text"]
    more: dict[str, Any] = {"logprobs": []} if part["type"] == "output_text" else {}
    yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
    yield f"response.{part['type']}.delta", {**at, **more, "delta": text}
    yield f"response.{part['type']}.done", {**at, **more, "text": text}
    yield "response.content_part.done", {**at, "part": part}


def _event(kind: str, fields: Mapping[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dumps({"type": kind, **fields}) + b"\n\n"
