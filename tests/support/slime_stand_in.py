"""slime's side of its hooks, rewritten: what it calls, with what, and what it does with the answer.

The same names as in slime's own modules, so that a test can run against either (:func:`real_slime` finds the other one).
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import inspect
import itertools
import sys
import types
from argparse import Namespace
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

LOOP = "slime.rollout.sglang_rollout"
ABSENT = ("ray", "sglang", "sglang_router", "pylatexenc", "wandb")
"""Packages that slime imports and that these tests can do without."""


@dataclass
class Sample:
    """slime/utils/types.py"""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, str]] = ""
    tokens: list[int] = field(default_factory=list)
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    multimodal_train_input_id: str | None = None
    apply_chat_template_kwargs: dict = field(default_factory=dict)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_top_p_token_ids: list[int] | None = None
    rollout_top_p_token_offsets: list[int] | None = None
    rollout_routed_experts: list[list[int]] | None = None
    remove_sample: bool = False
    teacher_log_probs: list[float] | None = None

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    status: Status = Status.PENDING
    metadata: dict = field(default_factory=dict)
    generate_function_path: str | None = None
    custom_rm_path: str | None = None
    train_metadata: dict | None = None
    session_id: str | None = None
    non_generation_time: float = 0.0

    def get_reward_value(self, args):
        return self.reward if not args.reward_key else self.reward[args.reward_key]

    def _validate_response_metadata_lengths(self):
        if self.loss_mask is not None and len(self.loss_mask) != self.response_length:
            raise ValueError("loss_mask")
        if self.rollout_log_probs is not None and len(self.rollout_log_probs) != self.response_length:
            raise ValueError("rollout_log_probs")


class GenerateState:
    """slime/rollout/sglang_rollout.py, what the hook meets of it; one for all, as there."""

    one: GenerateState | None = None

    def __new__(cls, args: Namespace) -> GenerateState:
        if cls.one is None:
            cls.one = super().__new__(cls)
            cls.one.semaphore, cls.one.aborted = asyncio.Semaphore(64), False
        return cls.one

    def dp_rank_context(self):
        return MagicMock()


def load_function(path):
    """slime/utils/misc.py"""
    module, _, attr = path.rpartition(".")
    return getattr(importlib.import_module(module), attr)


async def generate_and_rm(args, sample, sampling_params, evaluation=False):
    """slime/rollout/sglang_rollout.py: without reward models, which nothing here may need."""
    state = GenerateState(args)
    async with state.semaphore:
        if state.aborted:
            sample.status = Sample.Status.ABORTED
            return sample
        function = load_function(sample.generate_function_path or args.custom_generate_function_path)
        known = "evaluation" in inspect.signature(function).parameters
        samples = await function(args, sample, sampling_params, **({"evaluation": evaluation} if known else {}))
    if not any(s.status == Sample.Status.ABORTED for s in samples):
        assert all(s.reward is not None for s in samples), "slime would ask a reward model"
    return samples


async def generate_and_rm_group(args, group, sampling_params, evaluation=False):
    """slime/rollout/sglang_rollout.py"""
    for number, sample in enumerate(group):
        sample.session_id = sample.session_id or f"session-{number}"
    return await asyncio.gather(*(generate_and_rm(args, s, sampling_params.copy(), evaluation) for s in group))


def validate_rollout_id_annotated(node, depth=0):
    """slime/observability/rollout_data_utils.py"""
    if isinstance(node, Sample):
        return
    assert isinstance(node, list)
    if node and isinstance(node[0], Sample):
        if depth >= 2 and len(node) > 1:
            ids = [sample.rollout_id for sample in node]
            assert None not in ids
            assert len(set(ids)) == 1
        return
    for item in node:
        validate_rollout_id_annotated(item, depth + 1)


class RolloutManager:
    """slime/ray/rollout.py, from samples to training data."""

    def _post_process_rewards(self, samples):
        if self.custom_reward_post_process_func is not None:
            return self.custom_reward_post_process_func(self.args, samples)
        raw = [sample.get_reward_value(self.args) for sample in samples]
        rewards = torch.tensor(raw, dtype=torch.float)
        n = self.args.n_samples_per_prompt
        whole = rewards.shape[-1] == n * self.args.rollout_batch_size
        rewards = rewards.reshape(-1, n) if whole else rewards.view(-1, rewards.shape[-1])
        rewards = rewards - rewards.mean(dim=-1, keepdim=True)
        rewards = rewards / (rewards.std(dim=-1, keepdim=True) + 1e-6)
        return raw, rewards.flatten().tolist()

    def _convert_samples_to_train_data(self, samples):
        raw, rewards = self._post_process_rewards(samples)
        assert len(raw) == len(rewards) == len(samples)
        masks = []
        for sample in samples:
            assert len(sample.loss_mask) == sample.response_length
            masks.append([0] * sample.response_length if sample.remove_sample else sample.loss_mask)
        return {
            "tokens": [sample.tokens for sample in samples],
            "response_lengths": [sample.response_length for sample in samples],
            "rewards": rewards,
            "raw_reward": raw,
            "truncated": [int(sample.status == Sample.Status.TRUNCATED) for sample in samples],
            "rollout_ids": [sample.rollout_id for sample in samples],
            "loss_masks": masks,
            "rollout_log_probs": [sample.rollout_log_probs for sample in samples],
        }


@dataclass(frozen=True)
class Surface:
    """Either side: slime's own modules or this one."""

    loop: Any
    manager: type
    Sample: type
    validate: Any

    def train_data(self, args: Namespace, data: list[list[Any]]) -> dict[str, list[Any]]:
        """What slime does between its rollouts and its trainer."""
        if args.rollout_sample_filter_path is not None:
            load_function(args.rollout_sample_filter_path)(args, data)
        self.validate(data)
        while isinstance(data[0], list):
            data = list(itertools.chain.from_iterable(data))
        for sample in data:
            sample._validate_response_metadata_lengths()
        manager = self.manager.__new__(self.manager)
        path = args.custom_reward_post_process_path
        manager.args, manager.custom_convert_samples_to_train_data_func = args, None
        manager.custom_reward_post_process_func = load_function(path) if path else None
        return manager._convert_samples_to_train_data(data)


def stand_in() -> Surface:
    """This module, where slime's would be."""
    here = sys.modules[__name__]
    return Surface(here, RolloutManager, Sample, validate_rollout_id_annotated)


def real_slime(home: Path) -> Surface:
    """A checkout of slime. What it imports and is not installed becomes an empty shell; all that runs here is its own."""
    sys.path.insert(0, str(home))
    sys.meta_path.append(_Shells())
    loop, ray = (importlib.import_module(name) for name in (LOOP, "slime.ray.rollout"))
    validate = importlib.import_module("slime.observability.rollout_data_utils").validate_rollout_id_annotated
    return Surface(loop, ray.RolloutManager, importlib.import_module("slime.utils.types").Sample, validate)


class _Shells(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last, so that a package that is there is used."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = _anything
        return module

    def exec_module(self, module):
        module.remote = lambda *given, **_: given[0] if given and callable(given[0]) else lambda thing: thing


def _anything(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)
