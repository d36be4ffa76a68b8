"""Rollouts for somebody else's loop: what of the environment counts, and what becomes of rows and rollouts."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from plugin_folder import plugin_folder
from repair import FIX, SUBMIT, repair_row, saying
from tiny_model import Speller, tiny_model

from agentrl.api import AgentrlError, ExitStatus, PlanError, RowError
from agentrl.embed import Host, RolloutId, open_rollouts
from agentrl.rollout.journal import read_journal
from agentrl.rollout.verify import verify
from agentrl.testing.scripted_engine import ScriptedEngine

CLOUD = """
from agentrl.api import Capabilities, PluginSettings, hookimpl
from pydantic import Field, SecretStr

class Settings(PluginSettings):
    key: SecretStr | None = Field(None, validation_alias="CLOUD_API_KEY", description="Key")

class Cloud:
    def __init__(self, settings):
        self.capabilities = Capabilities(True, True, frozenset(), False, frozenset({"public"}))
    async def create(self, spec, *, labels, lifetime_sec): raise NotImplementedError
    async def attach(self, sandbox_id): raise NotImplementedError
    async def list(self, labels): return []
    async def delete(self, sandbox_id): ...
    async def prepare(self, image, resources, layers): return image
    async def aclose(self): ...
    async def probe(self): return None

@hookimpl
def agentrl_register_sandboxes(register):
    register("cloud", f"{__name__}:Cloud", settings=f"{__name__}:Settings")
"""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def engine(model_dir: Path):
    async with ScriptedEngine(saying(Speller(model_dir), [FIX, SUBMIT])) as running:
        yield running


@pytest.fixture
def environ(engine: ScriptedEngine, model_dir: Path, local_state: Path, tmp_path: Path) -> dict[str, str]:
    return {
        "AGENTRL_ENGINE": engine.url,
        "AGENTRL_MODEL": str(model_dir),
        "AGENTRL_RUN_DIR": str(tmp_path),
        "SWE_LOCAL_STATE_DIR": str(local_state),
        "SWE_MINI_DEMONSTRATION": "false",
        "SWE_CONTEXT_TOKENS": "4000",
        "SWE_MAX_NEW_TOKENS": "64",
    }


async def test_rows_go_in_and_proven_rollouts_come_out(environ: dict[str, str]):
    async with open_rollouts({}, name="test", environ=environ) as rollouts:
        first, second = await asyncio.gather(
            *(rollouts.run(repair_row(f"task-{i}"), RolloutId(0, i, 0)) for i in range(2))
        )
    assert (first.task_id, first.reward, second.task_id, second.reward) == ("task-0", 1.0, "task-1", 1.0)
    assert verify(read_journal(rollouts.journal)).rollouts == 2


async def test_the_first_row_tells_wiring_from_data(environ: dict[str, str]):
    async with open_rollouts({}, name="test", environ=environ) as rollouts:
        with pytest.raises(PlanError, match="metadata"):
            await rollouts.run({"id": "x"}, RolloutId(0, 0, 0))
        await rollouts.run(repair_row(), RolloutId(0, 0, 1))
        with pytest.raises(RowError, match="metadata"):
            await rollouts.run({"id": "x"}, RolloutId(0, 0, 2))
        long = repair_row()
        long["metadata"]["problem_statement"] = "word " * 4000
        with pytest.raises(RowError, match=r"SWE_CONTEXT_TOKENS \(4000\) has no room"):
            await rollouts.run(long, RolloutId(0, 0, 3))


async def test_abort_all_ends_what_runs_and_what_waits(environ: dict[str, str], engine: ScriptedEngine):
    engine.held = asyncio.Event()
    async with open_rollouts({"SWE_CONCURRENCY": "1"}, name="test", environ=environ) as rollouts:
        running = [asyncio.create_task(rollouts.run(repair_row(), RolloutId(0, 0, i))) for i in range(2)]
        await asyncio.wait_for(engine.arrived.acquire(), 60)
        assert await rollouts.abort_all() == 2
        ended = await asyncio.gather(*running)
        assert [r.exit_status for r in ended] == [ExitStatus.CANCELLED] * 2
        assert [r.reward for r in ended] == [None, None]
        engine.held = None
        again = await rollouts.run(repair_row(), RolloutId(0, 0, 2))
    assert again.reward == 1.0


async def test_abort_all_ends_what_has_only_just_been_asked_for(environ: dict[str, str], engine: ScriptedEngine):
    async with open_rollouts({}, name="test", environ=environ) as rollouts:
        running = asyncio.create_task(rollouts.run(repair_row(), RolloutId(0, 0, 0)))
        await asyncio.sleep(0)
        assert await rollouts.abort_all() == 1
        assert (await running).exit_status is ExitStatus.CANCELLED
    assert engine.calls == []


async def test_a_cancelled_caller_takes_its_rollout_along(environ: dict[str, str], engine: ScriptedEngine):
    engine.held = asyncio.Event()
    async with open_rollouts({}, name="test", environ=environ) as rollouts:
        running = asyncio.create_task(rollouts.run(repair_row(), RolloutId(0, 0, 0)))
        await asyncio.wait_for(engine.arrived.acquire(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await rollouts.plan.parts.backend.list({}) == []
        assert await rollouts.abort_all() == 0


async def test_problems_carry_both_names(environ: dict[str, str]):
    overrides, called = {"SWE_MAX_NEW_TOKENS": "4000"}, {"SWE_MAX_NEW_TOKENS": "--cap"}
    with pytest.raises(
        PlanError, match=re.escape("SWE_MAX_NEW_TOKENS (--cap) (4000) must be less than SWE_CONTEXT_TOKENS")
    ):
        async with open_rollouts(overrides, name="test", environ=environ, called=called):
            pass


async def test_an_agent_that_cannot_call_the_gateway_is_refused(environ: dict[str, str], tmp_path: Path):
    with plugin_folder(tmp_path) as folder:
        environ |= {"AGENTRL_PLUGINS": folder.module("distant_machines", CLOUD), "SWE_SANDBOX": "cloud"}
        environ |= {"SWE_AGENT": "claude-code", "AGENTRL_REACH": "public"}
        with pytest.raises(PlanError, match="set ADAPTER_PUBLIC_HOST to the name under which cloud sandboxes"):
            async with open_rollouts({}, name="test", environ=environ):
                pass


async def test_a_process_opens_its_rollouts_once_and_says_when_they_are_closed(environ: dict[str, str]):
    host, opened = Host(), []

    def opening():
        opened.append(1)
        return open_rollouts({}, name="test", environ=environ)

    first, second = await asyncio.gather(host.rollouts(opening), host.rollouts(opening))
    assert first is second and opened == [1]
    assert len({host.rollout_id(0, 1), host.rollout_id(0, 1), host.rollout_id(None, None)}) == 3
    await host.aclose()
    again = asyncio.create_task(host.rollouts(opening))
    await asyncio.sleep(0)
    await host.aclose()
    with pytest.raises(AgentrlError, match="closed"):
        await again


async def test_foreign_names_are_dropped_unless_a_part_knows_them(environ: dict[str, str], caplog):
    environ |= {"SWE_THEIR_KNOB": "1", "SWE_MINI_OUTPUT_CHARS": "777"}
    with pytest.raises(PlanError, match="SWE_THEIR_KNOB"):
        async with open_rollouts({}, name="test", environ=environ):
            pass
    async with open_rollouts({}, name="test", environ=environ, foreign=re.compile(r"SWE_(THEIR|MINI)_\w+")) as rollouts:
        assert rollouts.plan.resolved.values["SWE_MINI_OUTPUT_CHARS"] == "777"
    assert "ignored: SWE_THEIR_KNOB" in caplog.text


async def test_a_key_chooses_the_machines_where_nothing_else_does(environ: dict[str, str], tmp_path: Path):
    with plugin_folder(tmp_path) as folder:
        environ |= {"AGENTRL_PLUGINS": folder.module("cloud_machines", CLOUD), "CLOUD_API_KEY": "secret"}
        async with open_rollouts({}, name="test", environ=environ) as rollouts:
            assert rollouts.plan.settings.sandbox == "cloud"
        environ["SWE_SANDBOX"] = "local"
        async with open_rollouts({}, name="test", environ=environ) as rollouts:
            assert rollouts.plan.settings.sandbox == "local"
