"""A run may be ended at any moment in any way: nothing is left behind, and it goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import Command, Result, finish, rows
from gate import Gate
from repair import FIX, SUBMIT, repair_row, saying
from tiny_model import Speller

from agentrl.testing.scripted_engine import ScriptedEngine

PATIENCE_SEC = 600
INTERRUPTED = 130
GROUPS, SIZE, ITERATIONS = 2, 2, 2


@dataclass
class Stage:
    """A run that can be stopped at a step."""

    command: Command
    gate: Gate

    @property
    def run(self) -> Path:
        """Its folder."""
        return self.command.runs / "it"

    def sandboxes(self) -> list[str]:
        """Machines of which there are files."""
        return [path.name for path in (self.command.home / "local" / "sandboxes").glob("local-*")]

    async def train(self, *words: str) -> Result:
        """To the end."""
        return await asyncio.wait_for(finish(await self.command.start("train", *words)), PATIENCE_SEC)

    async def until(self, step: str, *words: str) -> asyncio.subprocess.Process:
        """Start, and return when it stands at ``step``."""
        self.gate.stop_at(step)
        process = await self.command.start("train", *words)
        ended = asyncio.ensure_future(process.wait())
        reached = asyncio.ensure_future(self.gate.reached())
        await asyncio.wait([ended, reached], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_SEC)
        ended.cancel()
        if not reached.done():
            raise AssertionError(f"it never came to {step!r}: {(await self._give_up(process)).output}")
        return process

    @staticmethod
    async def _give_up(process: asyncio.subprocess.Process) -> Result:
        if process.returncode is None:
            process.kill()
        return await finish(process)


@pytest.fixture
def stage(command: Callable[..., Command], model_dir: Path) -> Callable[..., object]:
    """``async with stage() as s``: scripted engine, plain trainer, real sandboxes, a gate before each step."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Stage]:
        async with AsyncExitStack() as stack:
            script = saying(Speller(model_dir), [FIX, SUBMIT])
            model = await stack.enter_async_context(ScriptedEngine(script))
            gate = await stack.enter_async_context(Gate())
            variables = {
                "AGENTRL_PLUGINS": "gated_plugin",
                "AGENTRL_ENGINE": "gated",
                "AGENTRL_TRAINER": "plain",
                "AGENTRL_MIDDLEWARE": "gate",
                "AGENTRL_GATE_PORT": str(gate.port),
                "AGENTRL_GATE_ENGINE": model.url,
                "AGENTRL_GROUPS": str(GROUPS),
                "AGENTRL_GROUP_SIZE": str(SIZE),
                "AGENTRL_ITERATIONS": str(ITERATIONS),
                "SWE_CONCURRENCY": "2",
                "AGENTRL_WARM": "2",
                "SWE_MAX_NEW_TOKENS": "100",
                "SWE_MAX_TURNS": "5",
                "SWE_MINI_DEMONSTRATION": "false",
            }
            yield Stage(command([repair_row(f"repair-{i}") for i in range(3)], **variables), gate)

    return opened


async def interrupt(stage: Stage, process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """End it, and see that it ended well and completely."""
    process.send_signal(number)
    result = await asyncio.wait_for(finish(process), PATIENCE_SEC)
    await stage.command.gone()
    if number == KILL:
        assert result.code == -KILL
        return
    assert result.code == INTERRUPTED, result.output
    assert "go on with: agentrl train --resume it" in result.output
    assert "Traceback" not in result.output
    assert stage.sandboxes() == []


def check_whole(stage: Stage) -> None:
    """All iterations, each rollout and each iteration once, every record proved."""
    journal = rows(stage.run / "journal.jsonl")
    expected = {f"i{i}-g{g}-r{r}" for i in range(ITERATIONS) for g in range(GROUPS) for r in range(SIZE)}
    assert Counter(row["id"] for row in journal) == Counter(expected)
    assert {row["exit_status"] for row in journal} == {"solved"}
    metrics = rows(stage.run / "metrics.jsonl")
    assert [row["iteration"] for row in metrics] == list(range(ITERATIONS))
    assert {row["rollouts_graded"] for row in metrics} == {GROUPS * SIZE}
    proof = stage.command.run("verify", "it")
    assert proof.code == 0, proof.output


TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
STEPS = ("start", "turn i0-g1-r0 1", "train 1", "publish 2")
"""In the order in which a run of two iterations comes to them."""


@pytest.mark.slow
@pytest.mark.parametrize("endings", [(KILL,) * 4, (TERM, INT, TERM, INT)], ids=["killed", "stopped"])
async def test_a_run_that_is_ended_at_every_step_comes_to_its_end(stage, endings: Sequence[signal.Signals]):
    async with stage() as s:
        journal = s.run / "journal.jsonl"
        for number, (step, ending) in enumerate(zip(STEPS, endings, strict=True)):
            before = journal.read_bytes() if journal.exists() else b""
            process = await s.until(step, *(("--resume", "it") if number else ("--name", "it")))
            if step.startswith("turn"):
                alive = "\n".join(s.command.traces())
                for program in ("bwrap", "sleep 1000", "bin/agentrl train"):
                    assert program in alive, "the search for traces would not find one"
            await interrupt(s, process, ending)
            assert journal.exists() == (step != "start")
            # The last line may have been cut: then it is dropped.
            assert not before or journal.read_bytes().startswith(before.rpartition(b"\n")[0])
        done = await s.train("--resume", "it")
        assert done.code == 0, done.output
        check_whole(s)
        # What a killed process could not remove, the next start of its run has removed.
        assert s.sandboxes() == []


async def test_gc_removes_what_a_killed_run_left_behind(stage):
    async with stage() as s:
        process = await s.until(next(step for step in STEPS if step.startswith("turn")), "--name", "it")
        await interrupt(s, process, KILL)
        left = s.sandboxes()
        assert left
        listed = s.command.run("gc", "--run", "it", "--dry-run")
        assert [name for name in left if name not in listed.output] == []
        assert s.sandboxes() == left
        deleted = s.command.run("gc", "--run", "it")
        assert deleted.code == 0, deleted.output
        assert s.sandboxes() == []
        assert "0 found" in s.command.run("gc", "--run", "it", "--dry-run").output


async def test_a_second_process_on_the_same_run_is_refused(stage):
    async with stage() as s:
        process = await s.until("train 0", "--name", "it")
        second = await s.train("--resume", "it")
        assert second.code == 2
        assert "is in use by another process" in second.output
        assert "Traceback" not in second.output
        await interrupt(s, process, TERM)


@pytest.mark.slow
async def test_the_real_trainer_and_engine_die_with_a_killed_run(command):
    """Killed while engine and trainer work; the leash ends both, and training goes on from the checkpoint."""
    async with Gate() as gate:
        variables = {
            "AGENTRL_PLUGINS": "coin_plugin,gated_plugin",
            "SWE_TRAIN_PROTOCOL": "coin",
            "AGENTRL_MIDDLEWARE": "gate",
            "AGENTRL_GATE_PORT": str(gate.port),
            "AGENTRL_CHECKPOINT_EVERY": "1",
            "AGENTRL_LOCAL_THREADS": "1",
            "AGENTRL_TRAINER_THREADS": "1",
        }
        coins = [{"id": f"coin-{i}", "problem": "Toss it."} for i in range(2)]
        s = Stage(command(coins, **variables), gate)
        process = await s.until("turn i1-g1-r0", "--name", "it")
        engines = [line for line in s.command.traces() if "agentrl_engine_local.server" in line]
        ranks = [line for line in s.command.traces() if "agentrl_megatron.rank" in line]
        assert engines
        assert ranks
        await interrupt(s, process, KILL)
        done = await s.train("--resume", "it")
        assert done.code == 0, done.output
        await s.command.gone()
        metrics = rows(s.run / "metrics.jsonl")
        assert [row["iteration"] for row in metrics] == [0, 1]
        assert max(row["logprob_abs_diff"] for row in metrics) < 1e-3
        ids = [row["id"] for row in rows(s.run / "journal.jsonl")]
        assert len(ids) == len(set(ids)) == 8
        assert s.command.run("verify", "it").code == 0


def test_names_that_nobody_knows_are_told_with_the_nearest_one(command):
    done = command([repair_row()]).run("train", SWE_SANDBOX="locl", SWE_CONCURENCY="1")
    assert done.code == 2
    assert "there is no sandbox locl. Did you mean local?" in done.output
    assert "SWE_CONCURENCY is not a setting. Did you mean SWE_CONCURRENCY?" in done.output
    assert "Traceback" not in done.output


def test_resuming_a_run_that_is_not_there_lists_those_that_are(command):
    made = command([repair_row()])
    for name in ("one", "two"):
        (made.runs / name).mkdir(parents=True)
        (made.runs / name / "plan.json").write_text('{"set": {}}')
    done = made.run("train", "--resume", "three")
    assert done.code == 2
    assert "there is no run in" in done.output
    assert "there are: one, two" in done.output
    assert "Traceback" not in done.output


def test_a_name_that_is_taken_is_refused(command):
    made = command([repair_row()])
    (made.runs / "one").mkdir(parents=True)
    (made.runs / "one" / "metrics.jsonl").write_text("")
    done = made.run("train", "--name", "one")
    assert done.code == 2
    assert "go on with it by --resume one" in done.output
    assert [path.name for path in (made.runs / "one").iterdir()] == ["metrics.jsonl"]
