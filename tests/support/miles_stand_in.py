"""miles' side of its two hooks, rewritten: what it calls, with what, and what it does with the answer.

The same names as in miles' own modules, so that a test can run against either (:func:`real_miles` finds the other one). Its session
server is always the one here; the rule by which that compares histories is the side's own.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import itertools
import sys
import types
from argparse import Namespace
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from aiohttp import web
from aiohttp.test_utils import TestServer

BASE = "miles.rollout.base_types"
ABSENT = (
    "ray",
    "sglang",
    "sglang_router",
    "fastapi",
    "starlette",
    "uvicorn",
    "setproctitle",
    "pybase64",
    "wandb",
    "msgspec",
    "mbridge",
    "pylatexenc",
)
"""Packages that miles imports and that these tests can do without."""
CHAT_FIELDS = ("temperature", "top_p", "top_k", "max_tokens", "stop", "stop_token_ids", "seed", "model", "messages")
"""Of SGLang's chat request, what miles forwards, and what it keeps back."""


@dataclass
class Sample:
    """miles/utils/types.py"""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, str]] = ""
    tokens: list[int] = field(default_factory=list)
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_routed_experts: Any = None
    rollout_indexer_topk: Any = None
    remove_sample: bool = False
    teacher_log_probs: list[float] | None = None
    opd_reverse_kl: list[float] | None = None

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    status: Status = Status.PENDING
    metadata: dict = field(default_factory=dict)
    generate_function_path: str | None = None
    train_metadata: dict | None = None
    adapter: Any = None
    reward_spec: Any = None
    routing_key: str | None = None
    non_generation_time: float = 0.0

    def get_reward_value(self, args):
        return self.reward if not args.reward_key else self.reward[args.reward_key]

    def validate(self):
        assert 0 <= self.response_length <= len(self.tokens)
        assert self.loss_mask is None or len(self.loss_mask) == self.response_length
        assert self.rollout_log_probs is None or len(self.rollout_log_probs) == self.response_length


@dataclass(frozen=True)
class GenerateFnInput:
    """miles/rollout/base_types.py"""

    state: Any
    sample: Sample
    sampling_params: dict[str, Any]
    evaluation: bool

    @property
    def args(self):
        return self.state.args


@dataclass(frozen=True)
class GenerateFnOutput:
    """miles/rollout/base_types.py"""

    samples: Sample | list[Sample]


def load_function(path):
    """miles/utils/misc.py"""
    module, _, attr = path.rpartition(".")
    return getattr(importlib.import_module(module), attr)


async def generate_and_rm(state, sample, sampling_params, evaluation=False):
    """miles/rollout/inference_rollout/inference_rollout_common.py"""
    async with state.generate_fn_semaphore:
        if state.aborted:
            sample.status = Sample.Status.ABORTED
            return sample
        output = await state.generate_function(
            GenerateFnInput(
                state=state, sample=sample, sampling_params=deepcopy(sampling_params), evaluation=evaluation
            )
        )
    sample, rm = output.samples, load_function(state.args.custom_rm_path)
    if isinstance(sample, list):
        if any(s.status == Sample.Status.ABORTED for s in sample):
            return sample
        without = [s for s in sample if s.reward is None]
        for one, reward in zip(without, await rm(state.args, without), strict=True):
            one.reward = reward
    elif sample.status != Sample.Status.ABORTED and sample.reward is None:
        sample.reward = await rm(state.args, sample)
    return sample


async def generate_and_rm_group(state, group, sampling_params, evaluation=False):
    """miles/rollout/inference_rollout/inference_rollout_common.py"""
    return await asyncio.gather(*(generate_and_rm(state, s, sampling_params.copy(), evaluation) for s in group))


async def call_agent_abort_hook(args):
    """miles/utils/misc.py"""
    module, _, _ = args.custom_agent_function_path.rpartition(".")
    await load_function(f"{module}.abort")(args)


def check_no_aborted(args, samples, **kwargs):
    """miles/rollout/filter_hub/dynamic_sampling_filters.py"""
    flat = itertools.chain.from_iterable(s if isinstance(s, list) else [s] for s in samples)
    return SimpleNamespace(keep=not any(s.status == Sample.Status.ABORTED for s in flat))


def validate_compact_rollout_ids(node, depth=0):
    """miles/ray/rollout/rollout_data_conversion.py"""
    if isinstance(node, Sample):
        return
    if node and isinstance(node[0], Sample):
        if depth >= 2 and len(node) > 1:
            ids = [sample.rollout_id for sample in node]
            assert None not in ids
            assert len(set(ids)) == 1
        return
    for item in node:
        validate_compact_rollout_ids(item, depth + 1)


def convert_samples_to_train_data(args, samples, metadata, convert, post_process):
    """miles/ray/rollout/train_data_conversion.py"""
    raw = [sample.get_reward_value(args) for sample in samples]
    rewards = torch.tensor(raw, dtype=torch.float)
    return {
        "tokens": [sample.tokens for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "rewards": (rewards - rewards.mean()).tolist(),
        "raw_reward": raw,
        "rollout_ids": [s.rollout_id if s.rollout_id is not None else s.index for s in samples],
        "loss_masks": [[0] * s.response_length if s.remove_sample else s.loss_mask for s in samples],
        "rollout_log_probs": [sample.rollout_log_probs for sample in samples],
        "weight_versions": [sample.weight_versions for sample in samples],
    }


def strict_message_matches(stored, new):
    """miles/utils/chat_template_utils/message_matcher_hub/funcs.py"""
    keys = ("role", "content", "reasoning_content", "tool_calls")
    return all((stored.get(key) or None) == (new.get(key) or None) for key in keys)


async def agentic_generate(given):
    """miles/rollout/generate_hub/agentic_tool_call.py"""
    args = given.args
    session = await OpenAIEndpointTracer.create(args)
    found = None
    try:
        kwargs = {"max_tokens" if k == "max_new_tokens" else k: v for k, v in given.sampling_params.items()}
        found = await load_function(args.custom_agent_function_path)(
            base_url=session.base_url,
            prompt=given.sample.prompt,
            request_kwargs={k: v for k, v in kwargs.items() if k in CHAT_FIELDS and v is not None},
            metadata={**given.sample.metadata, "max_seq_len": args.max_seq_len, "session_server_id": "here"},
        )
    except Exception:
        pass  # miles logs it
    reply = await session.collect_samples(given.sample, max_seq_len=args.max_seq_len)
    if not reply.samples:
        sample = deepcopy(given.sample)
        sample.status = Sample.Status.ABORTED
        return GenerateFnOutput(samples=sample)
    [sample] = reply.samples
    sample.metadata.update(found or {})
    return GenerateFnOutput(samples=sample)


class OpenAIEndpointTracer:
    """miles/rollout/generate_utils/openai_endpoint_utils.py; ``server`` is set by a test."""

    server: SessionServer

    @classmethod
    async def create(cls, args):
        return cls.server.session()


class SessionServer:
    """miles' session server: it keeps histories and ids, and takes a request only if it adds to what it has.

    ``replies``: the messages of the policy, one a turn, each with the number of ids that it cost. ``refused``: requests that did not
    continue what was stored. ``bodies``: what came.
    """

    session_id, session_server_id, session_server_instance_id = "s", "here", None

    def __init__(self, replies: list[tuple[dict[str, Any], str]], matches: Any, sample: type) -> None:
        self._replies, self._matches, self._sample = replies, matches, sample
        self.bodies: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self._messages: list[dict[str, Any]] = []
        self._tokens: list[int] = []
        self._mask: list[int] = []

    async def __aenter__(self) -> SessionServer:
        app = web.Application()
        app.router.add_post("/sessions/s/v1/chat/completions", self._chat)
        self._server = TestServer(app)
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    def session(self) -> SessionServer:
        return self

    @property
    def base_url(self) -> str:
        return str(self._server.make_url("/sessions/s"))

    async def _chat(self, http: web.Request) -> web.Response:
        body = await http.json()
        self.bodies.append(body)
        messages, stored = body["messages"], self._messages
        if len(messages) <= len(stored) or not all(map(self._matches, stored, messages)):
            self.refused.append(body)
            return web.json_response({"error": "messages are not append-only"}, status=400)
        message, finish = self._replies[len(self.bodies) - 1]
        said = {"role": "assistant", "reasoning_content": None, "tool_calls": None, **message}
        self._messages = [*messages, said]
        for new, trained in ((messages[len(stored) :], 0), ([said], 1)):
            self._tokens += range(len(new))
            self._mask += [trained] * len(new)
        choice = {"index": 0, "message": said, "finish_reason": finish, "meta_info": {"output_token_logprobs": []}}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})

    async def collect_samples(self, sample, *, max_seq_len, agent_metadata=None):
        if not self._tokens:
            return SimpleNamespace(samples=[], session_metadata={}, empty_reason="no_records")
        done = deepcopy(sample)
        done.tokens, done.response_length = self._tokens, len(self._tokens) - 1
        done.loss_mask, done.rollout_log_probs = self._mask[1:], [0.0] * (len(self._mask) - 1)
        done.status = self._sample.Status.COMPLETED
        return SimpleNamespace(samples=[done], session_metadata={}, empty_reason=None)


@dataclass(frozen=True)
class Surface:
    """Either side: miles' own modules or this one."""

    Sample: type
    loop: Any
    agentic: Any
    tracer: type
    convert: Any
    validate: Any
    check_no_aborted: Any
    call_agent_abort_hook: Any
    matches: Any

    def state(self, args: Namespace, function: Any) -> Any:
        """``GenerateState``, without its tokenizer."""
        return SimpleNamespace(
            args=args, generate_fn_semaphore=asyncio.Semaphore(64), generate_function=function, aborted=False
        )

    def train_data(self, args: Namespace, data: list[Any]) -> dict[str, list[Any]]:
        """What miles does between its rollouts and its trainer."""
        assert all(self.check_no_aborted(args, group).keep for group in data)
        self.validate(data)
        while isinstance(data[0], list):
            data = list(itertools.chain.from_iterable(data))
        for sample in data:
            sample.validate()
        return self.convert(args, data, {}, None, None)


def stand_in() -> Surface:
    """This module, where miles' would be."""
    here = sys.modules[__name__]
    return Surface(
        Sample,
        here,
        agentic_generate,
        OpenAIEndpointTracer,
        convert_samples_to_train_data,
        validate_compact_rollout_ids,
        check_no_aborted,
        call_agent_abort_hook,
        strict_message_matches,
    )


def real_miles(home: Path) -> Surface:
    """A checkout of miles. What it imports and is not installed becomes an empty shell; all that runs here is its own."""
    sys.path.insert(0, str(home))
    sys.meta_path.append(_Shells())
    load = importlib.import_module
    protocol = load("sglang.srt.entrypoints.openai.protocol")
    if isinstance(protocol.ChatCompletionRequest, MagicMock):
        protocol.ChatCompletionRequest = SimpleNamespace(model_fields=dict.fromkeys(CHAT_FIELDS))
    agentic = load("miles.rollout.generate_hub.agentic_tool_call")
    return Surface(
        load("miles.utils.types").Sample,
        load("miles.rollout.inference_rollout.inference_rollout_common"),
        agentic.generate,
        agentic.OpenAIEndpointTracer,
        load("miles.ray.rollout.train_data_conversion").convert_samples_to_train_data,
        load("miles.ray.rollout.rollout_data_conversion").validate_compact_rollout_ids,
        load("miles.rollout.filter_hub.dynamic_sampling_filters").check_no_aborted,
        load("miles.utils.misc").call_agent_abort_hook,
        load("miles.utils.chat_template_utils.message_matcher_hub").strict_message_matches,
    )


class _Shells(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last, so that a package that is there is used."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__, module.__version__ = [], "0"
        module.__getattr__ = _anything
        return module

    def exec_module(self, module):
        module.remote = lambda *given, **_: given[0] if given and callable(given[0]) else lambda thing: thing


def _anything(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)
