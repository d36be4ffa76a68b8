"""agentrl under miles: its hooks are called as miles calls them, and miles' own code takes what they return.

Twice: against a stand-in of miles, and against miles itself when ``MILES_HOME`` names a checkout.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import types
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import miles_stand_in
import pytest
from miles_stand_in import BASE, SessionServer, Surface, load_function, real_miles, stand_in
from repair import BREAK, FIX, SUBMIT, repair_row, saying
from tiny_model import Speller, tiny_model

import agentrl_miles
from agentrl.embed import host
from agentrl.plugins import load_plugins
from agentrl.registry import KINDS
from agentrl.rollout.journal import read_journal
from agentrl.rollout.verify import verify
from agentrl.settings import resolve
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl_miles.start import CannotStart, started

HOME = os.environ.get("MILES_HOME", "")
PATIENCE_SEC = 300
SIDES = ["stand-in", pytest.param("miles", marks=pytest.mark.skipif(not HOME, reason="MILES_HOME"))]


@pytest.fixture(scope="module", params=SIDES)
def either(request: pytest.FixtureRequest) -> Surface:
    return stand_in() if request.param == "stand-in" else real_miles(Path(HOME))


@pytest.fixture
def miles(either: Surface, monkeypatch: pytest.MonkeyPatch) -> Surface:
    if either.Sample is miles_stand_in.Sample:
        names = {"miles", "miles.rollout"} - sys.modules.keys()
        for name in names:
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, BASE, miles_stand_in)
    return either


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def launch(model_dir: Path, local_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``launch(url, argument=…, VARIABLE=…)``: miles' arguments, with the environment of its rollout process."""
    monkeypatch.setenv("AGENTRL_RUN_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("SWE_LOCAL_STATE_DIR", str(local_state))
    monkeypatch.setenv("SWE_MINI_DEMONSTRATION", "false")

    def made(url: str = "http://127.0.0.1:1", **changes: Any) -> Namespace:
        for name in [name for name in changes if name.isupper()]:
            monkeypatch.setenv(name, changes.pop(name))
        ip, _, port = url.removeprefix("http://").partition(":")
        values = {"hf_checkpoint": str(model_dir), "sglang_router_ip": ip, "sglang_router_port": int(port)}
        return Namespace(**{**ARGUMENTS, **values, **changes})

    yield made
    await host().aclose()


ARGUMENTS: dict[str, Any] = {
    "custom_generate_function_path": "agentrl_miles.generate",
    "custom_agent_function_path": "agentrl_miles.agent",
    "custom_rm_path": "agentrl_miles.reward_func",
    "rollout_max_context_len": 4000,
    "rollout_max_response_len": 64,
    "max_seq_len": 4000,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "partial_rollout": False,
    "mask_offpolicy_in_partial_rollout": False,
    "group_rm": False,
    "advantage_estimator": "grpo",
    "rewards_normalization": True,
    "grpo_std_normalization": True,
    "n_samples_per_prompt": 2,
    "rollout_batch_size": 1,
    "reward_key": None,
    "use_dynamic_global_batch_size": False,
    "use_session_server": "v1",
    "session_server_ip": "127.0.0.1",
    "session_server_ports": [1],
    "sglang_router_policy": "cache_aware",
}


def group(miles: Surface, row: dict[str, Any] | None = None, size: int = 2) -> list[Any]:
    """One prompt as miles' data source hands it out."""
    row = row or repair_row()
    prompt = [{"role": "user", "content": row["metadata"]["problem_statement"]}]
    fields = {"prompt": prompt, "label": row["label"], "group_index": 3}
    return [miles.Sample(index=7 + i, metadata=dict(row["metadata"]), **fields) for i in range(size)]


def params(args: Namespace, **changes: Any) -> dict[str, Any]:
    return {
        "temperature": args.rollout_temperature,
        "top_p": args.rollout_top_p,
        "top_k": args.rollout_top_k,
        "max_new_tokens": args.rollout_max_response_len,
        "stop": None,
        "skip_special_tokens": False,
        **changes,
    }


async def roll(
    miles: Surface, args: Namespace, samples: list[Any], function: Any = None, evaluation: bool = False, **kw
):
    state = miles.state(args, function or load_function(args.custom_generate_function_path))
    asked = [miles.loop.generate_and_rm(state, s, params(args, **kw), evaluation=evaluation) for s in samples]
    return await asyncio.gather(*asked)


def scripted(model_dir: Path, *replies: str) -> ScriptedEngine:
    return ScriptedEngine(saying(Speller(model_dir), replies))


def test_miles_finds_its_functions():
    parameters = tuple(inspect.signature(agentrl_miles.generate).parameters)
    assert parameters == ("input",), "miles takes other signatures for its legacy interface"
    parser = ArgumentParser()
    agentrl_miles.generate.add_arguments(parser)
    path = parser.parse_args([]).custom_agent_function_path
    assert load_function(path) is agentrl_miles.agent
    assert load_function(f"{path.rpartition('.')[0]}.abort") is agentrl_miles.abort


def test_the_plugin_names_no_part():
    registry = load_plugins(resolve({})).registry
    names = {o.name for kind in ("sandboxes", "harnesses", "graders") for o in registry.offers(kind)}
    assert {"local", "terminus-2", "harbor"} <= names and KINDS.keys() >= {"sandboxes"}
    source = "\n".join(path.read_text() for path in Path(agentrl_miles.__file__).parent.glob("*.py"))
    spellings = {s for name in names - {"local"} for s in (name, name.replace("-", "_"))} | {
        '"local"',
        "docker",
        "daytona",
    }
    assert not [name for name in spellings if name in source.lower()]


# ------------------------------------------------------------------------------------- agentrl keeps the tokens


async def test_samples_are_exactly_what_was_sampled(miles: Surface, launch: Callable, model_dir: Path):
    async with scripted(model_dir, FIX, SUBMIT) as engine:
        args = launch(engine.url)
        data = [await roll(miles, args, group(miles))]
        journal = list(read_journal((await started({})).journal))
    verify(journal)
    trained = miles.train_data(args, data)
    expected = {tuple(sample.tokens): sample for rollout in journal for sample in rollout.samples}
    assert trained["raw_reward"] == [1.0, 1.0]
    assert trained["rollout_ids"] == [7, 8]
    assert trained["weight_versions"] == [[engine.version] * 2] * 2, "one a turn"
    for tokens, length, mask, logprobs in zip(
        *(trained[k] for k in ("tokens", "response_lengths", "loss_masks", "rollout_log_probs")), strict=True
    ):
        source = expected[tuple(tokens)]
        assert 0 < length < len(tokens)
        assert source.loss_mask == (*[0] * (len(tokens) - length), *mask)
        assert source.logprobs[-length:] == tuple(logprobs)
        assert mask[0] == 1


async def test_no_verdict_is_aborted_and_a_second_try_starts_anew(miles: Surface, launch: Callable, model_dir: Path):
    broken = repair_row()
    broken["metadata"]["pre_commands"] = ["false"]
    async with scripted(model_dir, FIX, SUBMIT) as engine:
        args = launch(engine.url)
        [[good], [bad]] = await roll(miles, args, [*group(miles, size=1), *group(miles, broken, size=2)[1:]])
        evaluated = await roll(miles, args, group(miles, broken, size=1), evaluation=True)
        bad.metadata.update(repair_row()["metadata"])
        [[again]] = await roll(miles, args, [bad])
    assert (bad.status, bad.reward, bad.remove_sample) == (miles.Sample.Status.ABORTED, None, True)
    assert bad.metadata["agentrl"]["exit_status"] == "task_invalid"
    assert not miles.check_no_aborted(args, [[good], [bad]]).keep
    assert evaluated == [[]], "an evaluation averages what there is"
    assert (again.status, again.reward, again.remove_sample) == (miles.Sample.Status.COMPLETED, 1.0, False)
    assert again.metadata["agentrl"]["rollout"] != bad.metadata["agentrl"]["rollout"]


async def test_an_evaluation_samples_as_it_is_told(miles: Surface, launch: Callable, model_dir: Path):
    async with scripted(model_dir, BREAK, SUBMIT) as engine:
        args = launch(engine.url)
        [[sample]] = await roll(miles, args, group(miles, size=1), evaluation=True, temperature=0.0, max_new_tokens=32)
    asked = engine.calls[0].sampling_params
    assert (asked["temperature"], asked["max_new_tokens"]) == (0.0, 32)
    assert sample.reward == 0.0


async def test_when_miles_aborts_every_rollout_ends(miles: Surface, launch: Callable, model_dir: Path):
    async with scripted(model_dir, FIX, SUBMIT) as engine:
        engine.held = asyncio.Event()
        args = launch(engine.url)
        rolling = asyncio.create_task(roll(miles, args, group(miles)))
        for _ in range(2):
            await asyncio.wait_for(engine.arrived.acquire(), PATIENCE_SEC)
        await miles.call_agent_abort_hook(args)
        data = await asyncio.wait_for(rolling, PATIENCE_SEC)
        assert await (await started({})).plan.parts.backend.list({}) == []
    for [sample] in data:
        assert (sample.status, sample.reward) == (miles.Sample.Status.ABORTED, None)
        assert sample.metadata["agentrl"]["exit_status"] == "cancelled"


REFUSED = {
    "timeouts": ({"SWE_AGENT_TIME_BUDGET_SEC": "900", "SWE_ROLLOUT_GUARD_SEC": "800"}, "SWE_ROLLOUT_GUARD_SEC"),
    "gateway out of reach": (
        {"SWE_SANDBOX": "local", "SWE_AGENT": "claude-code", "AGENTRL_REACH": "public"},
        "AGENTRL_REACH=public: local sandboxes",
    ),
    "prompt too long": (
        {"rollout_max_context_len": 65, "rollout_max_response_len": 8},
        r"SWE_CONTEXT_TOKENS \(--rollout-max-context-len\) \(65\) has no room for task",
    ),
    "caps": ({"rollout_max_response_len": 4000}, "--rollout-max-response-len"),
    "unknown variable": ({"SWE_AGENTS": "x"}, "SWE_AGENTS"),
    "partial rollouts": ({"partial_rollout": True}, "--partial-rollout"),
    "adapters": ({"lora_rank": 16}, "--lora-rank"),
    "wrong protocol": ({"SWE_TRAIN_PROTOCOL": "harbor"}, "path"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_work_ends_the_run_by_name(miles: Surface, launch: Callable, model_dir: Path, case: str):
    changes, named = REFUSED[case]
    row = repair_row()
    row["metadata"]["problem_statement"] *= 10
    async with scripted(model_dir, SUBMIT) as engine:
        with pytest.raises(CannotStart, match=named) as refusal:
            await roll(miles, launch(engine.url, **changes), group(miles, row, size=1))
        assert engine.calls == []
    assert not isinstance(refusal.value, Exception), "miles would log it and draw the next sample"


# --------------------------------------------------------------------------------------- miles keeps the tokens


def message(text: str | None, **more: Any) -> tuple[dict[str, Any], str]:
    finish = more.pop("finish", "stop")
    return {"content": text, **more}, finish


async def through_session(miles: Surface, args: Namespace, monkeypatch, replies: list, row=None, **kw):
    async with SessionServer(replies, miles.matches, miles.Sample) as server:

        async def create(_args: Namespace) -> SessionServer:
            return server

        monkeypatch.setattr(miles.tracer, "create", staticmethod(create))
        [sample] = await roll(miles, args, group(miles, row, size=1), miles.agentic, **kw)
    return server, sample


async def test_the_session_gets_its_own_words_back(miles: Surface, launch: Callable, monkeypatch):
    replies = [
        message(f"\n{BREAK}\n", reasoning_content="First I break it."),
        message(f"\n\n{FIX}\n\n", reasoning_content="Then I mend it."),
        message(SUBMIT, reasoning_content="Done."),
    ]
    server, sample = await through_session(miles, launch(), monkeypatch, replies, temperature=0.7, top_k=20)
    assert server.refused == []
    assert (sample.status, sample.reward) == (miles.Sample.Status.COMPLETED, 1.0)
    assert sum(sample.loss_mask) == 3
    sampling = {(body["temperature"], body["top_p"], body["top_k"], body["max_tokens"]) for body in server.bodies}
    assert sampling == {(0.7, 1.0, 20, 64)}, "the engine's own defaults must not decide"


async def test_nothing_follows_a_reply_that_was_cut_off(miles: Surface, launch: Callable, monkeypatch):
    replies = [message(FIX), message(BREAK, finish="length"), message(BREAK)]
    server, sample = await through_session(miles, launch(), monkeypatch, replies)
    assert len(server.bodies) == 2
    assert sample.metadata["agentrl"]["outcome"] == "truncated"


async def test_a_zero_is_a_verdict_and_nothing_is_none(miles: Surface, launch: Callable, monkeypatch):
    _, zero = await through_session(miles, launch(), monkeypatch, [message(BREAK), message(SUBMIT)])
    assert (zero.status, zero.reward) == (miles.Sample.Status.COMPLETED, 0.0)
    untouched = repair_row()
    untouched["metadata"]["pre_commands"] = ["false"]
    server, none = await through_session(miles, launch(), monkeypatch, [message(BREAK)], untouched)
    assert (none.status, none.reward, server.bodies) == (miles.Sample.Status.ABORTED, None, [])


async def test_reward_func_takes_one_or_many(miles: Surface):
    graded = miles.Sample(index=1, metadata={"agentrl": {"reward": 0.0}}, status=miles.Sample.Status.COMPLETED)
    without = miles.Sample(index=2, metadata={"reward": 1.0}, status=miles.Sample.Status.COMPLETED)
    assert await agentrl_miles.reward_func(Namespace(), graded) == 0.0
    assert await agentrl_miles.reward_func(Namespace(), [graded, without]) == [0.0, None]
    assert (graded.status, without.status) == (miles.Sample.Status.COMPLETED, miles.Sample.Status.ABORTED)
    assert without.remove_sample
