"""``agentrl gc`` and what signals leave for it: real processes on real backends."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from command import SUPPORT, Command

from agentrl.cli.app import main
from agentrl.cli.gc import seconds
from agentrl.errors import UsageError
from agentrl.lease import Ledger

BACKENDS = {"local": {}}
"""Backend → variables. One that is tested here must be able to make machines on this host."""
PATIENCE_SEC = 300.0

Hold = Callable[..., AbstractAsyncContextManager[asyncio.subprocess.Process]]


@pytest.fixture(params=BACKENDS)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Command:
    """The command, for one backend."""
    return Command(tmp_path, {"SWE_SANDBOX": request.param, **BACKENDS[request.param]})


async def line(process: asyncio.subprocess.Process) -> str:
    """The next one that it says."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), PATIENCE_SEC)).decode().rstrip()


@asynccontextmanager
async def holding(command: Command, run: str, count: int, **more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that holds machines, killed at the end if nothing else has ended it."""
    argv = [sys.executable, str(SUPPORT / "leaseholder.py"), run, str(count)]
    process = await asyncio.create_subprocess_exec(
        *argv, env=command.environment(**more), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said = [await line(process) for _ in range(count + 1)]
        assert said[-1] == "all", said
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def ledger(command: Command, run: str) -> Ledger:
    return Ledger(command.runs / run / "ledger.jsonl")


async def gc(command: Command, *words: str):
    return await asyncio.to_thread(command.run, "gc", *words)


async def test_after_a_kill_everything_is_found_and_deleted(command: Command):
    async with holding(command, "it", 2) as process:
        process.kill()
        await process.wait()
    assert len(ledger(command, "it").open_ids()) == 2
    listed = await gc(command, "--dry-run")
    assert (listed.code, "2 found" in listed.output) == (0, True), listed.output
    done = await gc(command)
    assert (done.code, "2 deleted" in done.output) == (0, True), done.output
    assert "i0-g0-r1" in done.output
    assert ledger(command, "it").open_ids() == ()
    assert "0 found" in (await gc(command, "--older", "0s", "--dry-run")).output
    await command.gone()


async def test_a_run_that_lives_is_left_alone_unless_forced(command: Command):
    async with holding(command, "it", 1):
        for words in ((), ("--older", "0s")):
            spared = await gc(command, *words)
            assert (spared.code, "0 deleted" in spared.output, "it is alive" in spared.output) == (0, True, True)
        refused = await gc(command, "--run", "it")
        assert (refused.code, "run it is alive" in refused.output) == (2, True)
        forced = await gc(command, "--run", "it", "--force")
        assert (forced.code, "1 deleted" in forced.output) == (0, True), forced.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
async def test_a_signal_ends_it_in_order(command: Command, number: signal.Signals):
    async with holding(command, "it", 2) as process:
        process.send_signal(number)
        assert "stopping" in await line(process)
        assert await asyncio.wait_for(process.wait(), PATIENCE_SEC) == 130
    entries = ledger(command, "it").read()
    assert (entries.open, entries.intended) == ({}, {})
    await command.gone()


async def test_a_second_signal_hurries_and_a_third_one_kills(tmp_path: Path):
    command = Command(tmp_path, {"SWE_SANDBOX": "provider:slow"})
    async with holding(command, "it", 1) as process:
        process.send_signal(signal.SIGTERM)
        assert "stopping" in await line(process)
        assert await line(process) == "deleting m1"
        process.send_signal(signal.SIGTERM)
        assert "hurrying" in await line(process)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE_SEC) == -signal.SIGTERM
    assert ledger(command, "it").open_ids() == ("m1",)


# ------------------------------------------------------------------------------------------------------- in process


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["gc", *words])
    return int(ended.value.code or 0), capsys.readouterr().out


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name, value in {"SWE_SANDBOX": "provider:stuck", "AGENTRL_RUN_DIR": str(tmp_path), "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def recorded(home: Path, sandbox_id: str, backend: str) -> None:
    """By a run that is dead by now."""
    ledger = Ledger(home / "dead" / "ledger.jsonl", "dead", backend)
    ledger.created(sandbox_id, rollout_id="i0-g0-r0")
    ledger.close()


def test_what_stays_is_named_and_makes_the_command_fail(stuck: Path, capsys):
    recorded(stuck, "m2", "provider:stuck")
    code, out = run(capsys)
    assert code == 1
    assert "not deleted: 500: [try] again" in out
    assert "1 deleted, 1 not" in out
    assert "2.0h" in out
    assert Ledger(stuck / "dead" / "ledger.jsonl").open_ids() == ()


def test_other_backends_machines_are_not_touched_but_told(stuck: Path, capsys):
    recorded(stuck, "x", "e2b")
    code, out = run(capsys, "--run", "other")
    assert (code, "0 deleted" in out) == (0, True)
    code, out = run(capsys, "--dry-run")
    assert "dead has 1 of e2b: agentrl gc SWE_SANDBOX=e2b" in out
    assert Ledger(stuck / "dead" / "ledger.jsonl").open_ids() == ("x",)


def test_ages_of_runs_that_are_not_here(stuck: Path, capsys):
    assert "0 found" in run(capsys, "--dry-run")[1], "nothing says that it is dead"
    assert "0 found" in run(capsys, "--older", "3h", "--dry-run")[1]
    assert "2 found" in run(capsys, "--older", "90m", "--dry-run")[1]
    assert "2 found" in run(capsys, "--run", "dead", "--dry-run")[1]


@pytest.mark.parametrize(("age", "expected"), [("90", 90.0), ("5m", 300.0), ("1.5h", 5400.0), ("2d", 172800.0)])
def test_ages(age: str, expected: float):
    assert seconds(age) == expected


@pytest.mark.parametrize("age", ["", "h", "-1h", "2w", "1h30m"])
def test_what_is_no_age(age: str):
    with pytest.raises(UsageError, match="is no age"):
        seconds(age)
