"""agentrl under slime: its hooks are called as slime calls them, and slime's own code takes what they return.

Twice: against a stand-in of slime, and against slime itself when ``SLIME_HOME`` names a checkout.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claude_rig import call
from repair import BREAK, FIX, SUBMIT, repair_row, saying
from slime_stand_in import LOOP, GenerateState, Surface, load_function, real_slime, stand_in
from tiny_model import CONTEXT, Speller, tiny_model

from agentrl.api import EngineSpec, PlanError
from agentrl.embed import host
from agentrl.rollout.journal import read_journal
from agentrl.rollout.verify import verify
from agentrl.testing.scripted_engine import ScriptedEngine
from agentrl_engine_local.launcher import LocalEngine
from agentrl_engine_local.settings import LocalEngineSettings
from agentrl_slime.start import started

HOME = os.environ.get("SLIME_HOME", "")
PATIENCE_SEC = 300


@pytest.fixture(
    scope="module", params=["stand-in", pytest.param("slime", marks=pytest.mark.skipif(not HOME, reason="SLIME_HOME"))]
)
def either(request: pytest.FixtureRequest) -> Surface:
    return stand_in() if request.param == "stand-in" else real_slime(Path(HOME))


@pytest.fixture
def slime(either: Surface, monkeypatch: pytest.MonkeyPatch) -> Surface:
    """slime, as far as it got when it calls the hook for the first time."""
    monkeypatch.setitem(sys.modules, LOOP, either.loop)
    monkeypatch.setattr(either.loop, "GenerateState", GenerateState)
    monkeypatch.setattr(GenerateState, "one", None)
    return either


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def launch(model_dir: Path, local_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``launch(url, argument=…, VARIABLE=…)``: slime's arguments, with the environment of its rollout process."""
    monkeypatch.setenv("AGENTRL_RUN_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("SWE_LOCAL_STATE_DIR", str(local_state))
    monkeypatch.setenv("SWE_MINI_DEMONSTRATION", "false")

    def made(url: str, **changes: Any) -> Namespace:
        for name in [name for name in changes if name.isupper()]:
            monkeypatch.setenv(name, changes.pop(name))
        ip, _, port = url.removeprefix("http://").partition(":")
        return arguments(hf_checkpoint=str(model_dir), sglang_router_ip=ip, sglang_router_port=int(port), **changes)

    yield made
    await host().aclose()


def arguments(**changes: Any) -> Namespace:
    values: dict[str, Any] = {
        "custom_generate_function_path": "agentrl_slime.generate",
        "custom_reward_post_process_path": None,
        "rollout_sample_filter_path": None,
        "rollout_max_context_len": 4000,
        "rollout_max_response_len": 64,
        "rollout_temperature": 1.0,
        "rollout_top_p": 1.0,
        "rollout_top_k": -1,
        "rollout_batch_size": 1,
        "n_samples_per_prompt": 2,
        "partial_rollout": False,
        "mask_offpolicy_in_partial_rollout": False,
        "group_rm": False,
        "advantage_estimator": "grpo",
        "rewards_normalization": True,
        "grpo_std_normalization": True,
        "reward_key": None,
        "custom_rm_path": None,
        "rm_type": None,
        "sglang_enable_deterministic_inference": False,
    }
    return Namespace(**{**values, **changes})


def group(slime: Surface, row: dict[str, Any] | None = None, size: int = 2) -> list[Any]:
    """One prompt as slime's data source hands it out."""
    row = row or repair_row()
    fields = {"prompt": row["prompt"], "label": row["label"], "group_index": 0}
    return [slime.Sample(index=7 + i, metadata=dict(row["metadata"]), **fields) for i in range(size)]


def params(args: Namespace, **changes: Any) -> dict[str, Any]:
    """As ``GenerateState`` makes them."""
    return {
        "temperature": args.rollout_temperature,
        "top_p": args.rollout_top_p,
        "top_k": args.rollout_top_k,
        "max_new_tokens": args.rollout_max_response_len,
        "stop": None,
        "stop_token_ids": None,
        **changes,
    }


def roll(slime: Surface, args: Namespace, samples: list[Any], evaluation: bool = False, **changes: Any):
    return slime.loop.generate_and_rm_group(args, samples, params(args, **changes), evaluation=evaluation)


def scripted(model_dir: Path, *replies: str) -> ScriptedEngine:
    return ScriptedEngine(saying(Speller(model_dir), replies))


async def journalled() -> list[Any]:
    """Every rollout of this process, after proof of its tokens."""
    return list(read_journal((await started(Namespace())).journal))


def test_slime_finds_the_functions_by_path_every_time():
    for name in ("generate", "post_process_rewards", "keep_mixed_group", "fill_missing_rewards") * 2:
        assert callable(load_function(f"agentrl_slime.{name}"))
    hook = load_function("agentrl_slime.generate")
    assert inspect.iscoroutinefunction(hook)
    assert tuple(inspect.signature(hook).parameters) == ("args", "sample", "sampling_params", "evaluation")


@pytest.mark.parametrize("agent", ["mini-swe", "terminus-2"])
async def test_a_step_with_a_real_engine(slime: Surface, launch: Callable, model_dir: Path, tmp_path: Path, agent: str):
    engine = LocalEngine(LocalEngineSettings(threads=1, slots=2, start_sec=600))
    running = await engine.start(EngineSpec(model_dir, 4000, "float32", 0, tmp_path / "engine.log"))
    try:
        args = launch(running.url, SWE_SANDBOX="local", SWE_AGENT=agent, SWE_MAX_TURNS="2")
        data = [await roll(slime, args, group(slime))]
        rollouts = await journalled()
    finally:
        await host().aclose()
        await running.aclose()
    assert verify(rollouts).calls >= 2
    assert [r.reward for r in rollouts] == [0.0, 0.0], [r.message for r in rollouts]
    assert_trains(slime, args, data, rollouts)


def assert_trains(slime: Surface, args: Namespace, data: list[Any], rollouts: list[Any]) -> None:
    """slime's own code makes training data of what it got, and that is what the rollouts sampled."""
    trained = slime.train_data(args, data)
    expected = [sample for rollout in rollouts for sample in rollout.samples]
    assert sorted(map(tuple, trained["tokens"])) == sorted(sample.tokens for sample in expected)
    assert set(trained["rollout_ids"]) == {7, 8}
    for tokens, length, mask, logprobs in zip(
        *(trained[k] for k in ("tokens", "response_lengths", "loss_masks", "rollout_log_probs")), strict=True
    ):
        sources = [s for s in expected if list(s.tokens) == tokens and list(s.logprobs[-length:]) == logprobs]
        assert 0 < length < len(tokens)
        assert {source.loss_mask[-length:] for source in sources} == {tuple(mask)}
        assert not any(any(source.loss_mask[:-length]) for source in sources)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["claude-code", "terminus-2"])
async def test_a_step_in_containers(
    slime: Surface, launch: Callable, model_dir: Path, docker_settings: Callable[..., Any], agent: str
):
    engine, keys = docker_settings(), {"keystrokes": "echo fixed > state.txt\n", "duration": 0.5}
    done = json.dumps({"analysis": "a", "plan": "p", "commands": [], "task_complete": True})
    replies = {
        "claude-code": [call("Bash", command="echo fixed > state.txt", description="Repair it"), "Done."],
        "terminus-2": [json.dumps({"analysis": "a", "plan": "p", "commands": [keys]}), done, done],
    }[agent]
    docker = {"SWE_SANDBOX": "docker", "DOCKER_HOST": engine.host, "SWE_DOCKER_IMAGE": engine.image}
    lengths = {"rollout_max_context_len": CONTEXT, "rollout_max_response_len": 400}
    async with scripted(model_dir, *replies) as model:
        args = launch(model.url, **docker, SWE_AGENT=agent, SWE_CLAUDE_SIMPLE="1", SWE_MAX_TURNS="5", **lengths)
        data = [await roll(slime, args, group(slime))]
        rollouts = await journalled()
    assert [r.reward for r in rollouts] == [1.0, 1.0], [r.message for r in rollouts]
    assert verify(rollouts).calls == 2 * len(replies)
    assert_trains(slime, args, data, rollouts)


async def test_a_solved_task_says_what_solved_it(slime: Surface, launch: Callable, model_dir: Path):
    async with scripted(model_dir, FIX, SUBMIT) as engine:
        args = launch(engine.url, SWE_AGENT="mini_swe")
        [[sample], [other]] = await roll(slime, args, group(slime))
        verify(await journalled())
    assert sample.reward == other.reward == 1.0
    assert sample.status is slime.Sample.Status.COMPLETED
    assert sample.weight_versions == [engine.version] * 2
    assert sample.response.startswith(FIX)
    assert sum(sample.loss_mask) == sum(len(call.output_ids) for call in engine.calls) / 2
    assert (sample.group_index, sample.index, sample.rollout_id) == (0, 7, 7)


async def test_evaluation_has_its_own_protocol_and_sampling(slime: Surface, launch: Callable, model_dir: Path):
    async with scripted(model_dir, BREAK, SUBMIT) as engine:
        args = launch(engine.url, SWE_EVAL_PROTOCOL="harbor", SWE_HARBOR_TASKS_DIR="examples/harbor/tasks")
        await roll(slime, args, group(slime, size=1))
        asked = len(engine.calls)
        with_path = {"prompt": "", "label": "x", "metadata": {"path": "nowhere"}}
        [[sample]] = await roll(slime, args, group(slime, with_path, size=1), evaluation=True)
        assert "nowhere is no task directory" in sample.metadata["abort_reason"]
        args = launch(engine.url, SWE_EVAL_PROTOCOL="")
        await host().aclose()
        [[sample]] = await roll(slime, args, group(slime, size=1), evaluation=True, temperature=0.0, max_new_tokens=32)
    assert sample.reward == 0.0
    assert sample.remove_sample
    before, after = engine.calls[0].sampling_params, engine.calls[asked].sampling_params
    assert (before["temperature"], before["max_new_tokens"]) == (1.0, 64)
    assert (after["temperature"], after["max_new_tokens"]) == (0.0, 32)


async def test_no_verdict_is_no_reward_and_the_step_goes_on(slime: Surface, launch: Callable, model_dir: Path):
    async with scripted(model_dir, FIX, SUBMIT) as engine:
        args = launch(engine.url)
        [good] = await roll(slime, args, group(slime, size=1))
        broken = repair_row()
        broken["metadata"]["pre_commands"] = ["false"]
        [bad] = await roll(slime, args, group(slime, broken, size=2)[1:])
        [evaluated] = await roll(slime, args, group(slime, broken, size=1), evaluation=True)
    [sample] = bad
    assert sample.reward is None
    assert sample.remove_sample
    assert sample.status is slime.Sample.Status.ABORTED
    assert sample.metadata["abort_reason"] == "task_invalid"
    assert math.isnan(evaluated[0].reward)
    trained = slime.train_data(args, [[good, bad]])
    assert sum(trained["loss_masks"][1]) == 0
    assert trained["rewards"][1] == pytest.approx(0.0)
    assert sample.metadata["reward_missing"]


async def test_when_slime_aborts_everything_ends(slime: Surface, launch: Callable, model_dir: Path):
    async with scripted(model_dir, FIX, SUBMIT) as engine:
        engine.held = asyncio.Event()
        args = launch(engine.url)
        rolling = asyncio.create_task(roll(slime, args, group(slime)))
        for _ in range(2):
            await asyncio.wait_for(engine.arrived.acquire(), PATIENCE_SEC)
        GenerateState(args).aborted = True
        data = await asyncio.wait_for(rolling, PATIENCE_SEC)
        for _ in range(2):
            await asyncio.wait_for(engine.aborted.acquire(), PATIENCE_SEC)
        machines = (await started(args)).plan.parts.backend
        assert await machines.list({}) == []
    for [sample] in data:
        assert (sample.status, sample.reward) == (slime.Sample.Status.ABORTED, None)
        assert sample.metadata["abort_reason"] == "cancelled"


REFUSED = {
    "timeouts": ({"SWE_AGENT_TIME_BUDGET_SEC": "900", "SWE_ROLLOUT_GUARD_SEC": "800"}, "SWE_ROLLOUT_GUARD_SEC"),
    "sandbox lifetime": ({"SLIME_AGENT_SANDBOX_LIFETIME_SEC": "60"}, "SWE_SANDBOX_LIFETIME_SEC"),
    "gateway out of reach": (
        {"SWE_SANDBOX": "local", "SWE_AGENT": "claude-code", "AGENTRL_REACH": "public"},
        "AGENTRL_REACH=public: local sandboxes",
    ),
    "no room for a prompt": ({"rollout_max_response_len": 4000}, "--rollout-max-context-len"),
    "context": ({"rollout_max_context_len": 9000}, "SWE_CONTEXT_TOKENS (--rollout-max-context-len)"),
    "prompt too long": ({"rollout_max_context_len": 65, "rollout_max_response_len": 8}, "--rollout-max-context-len"),
    "tokenizer": ({"hf_checkpoint": "somebody/model"}, "--hf-checkpoint"),
    "unknown part": ({"SWE_AGENT": "clod-code"}, "clod-code"),
    "unknown variable": ({"SWE_AGENTS": "x"}, "SWE_AGENTS"),
    "partial rollouts": ({"partial_rollout": True}, "--partial-rollout"),
    "top-p replay": ({"rollout_top_p": 0.9}, "--rollout-top-p"),
    "rendered prompts": ({"apply_chat_template": True}, "--apply-chat-template"),
    "own filter": ({"rollout_sample_filter_path": "x.y"}, "--custom-reward-post-process-path"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_work_is_refused_by_name(slime: Surface, launch: Callable, model_dir: Path, case: str):
    changes, named = REFUSED[case]
    row = repair_row()
    row["metadata"]["problem_statement"] *= 10
    async with scripted(model_dir, SUBMIT) as engine:
        url = engine.url
        args = launch(url, **{k: v for k, v in changes.items() if k != "hf_checkpoint"})
        args.hf_checkpoint = changes.get("hf_checkpoint", args.hf_checkpoint)
        for sample in group(slime, row):
            with pytest.raises(PlanError) as refusal:
                await load_function("agentrl_slime.generate")(args, sample, params(args))
            assert named in str(refusal.value)
        assert engine.calls == []


async def test_the_example_of_slime_with_one_path_changed(slime: Surface, launch: Callable, model_dir: Path, caplog):
    """All variables that its launch script sets."""
    script = {
        "SWE_AGENT": "claude_code",
        "SWE_TRAIN_PROTOCOL": "scaleswe",
        "SLIME_AGENT_SANDBOX_IMAGE_METADATA_KEY": "image",
        "SLIME_AGENT_NODE_TARBALL": "/x/node.tar.xz",
        "SLIME_AGENT_CC_TARBALL": "/x/cc.tgz",
        "SLIME_AGENT_CC_EXTRA_ARGS": "--disable-slash-commands",
        "SLIME_AGENT_CC_EXTRA_ENVS": "{}",
        "SWE_CC_PROMPT": "Read PROBLEM_STATEMENT.md.",
        "ADAPTER_PUBLIC_HOST": "127.0.0.1",
        "ADAPTER_BIND_HOST": "127.0.0.1",
        "ADAPTER_PORT": "0",
        "SWE_AGENT_TIME_BUDGET_SEC": "3600",
        "SWE_EVAL_TIMEOUT_SEC": "600",
        "SWE_ROLLOUT_GUARD_SEC": "0",
        "SWE_BOOT_CONCURRENCY": "16",
    }
    async with scripted(model_dir, SUBMIT) as engine:
        settings = (await started(launch(engine.url, **script))).plan.settings
    assert settings.rollout_guard_sec == 3600 + 600 + 180
    assert settings.sandbox_lifetime_sec > settings.rollout_guard_sec
    [ignored] = [record.message for record in caplog.records if "ignored" in record.message]
    assert "SLIME_AGENT_CC_TARBALL" in ignored
    assert "SWE_CC_PROMPT" in ignored
