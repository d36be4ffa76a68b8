"""Host processes on a leash: nothing that we started outlives us."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from agentrl.tools.leash import start_leashed

# Prints its own pid and that of a daemonised grandchild, then waits.
PROGRAM = """
import os, subprocess, sys, time
grandchild = subprocess.Popen(["setsid", "sleep", "1000"])
print(os.getpid(), grandchild.pid, flush=True)
time.sleep(1000)
"""


async def pids_in(log: Path) -> list[int]:
    while not (log.exists() and log.read_text().endswith("\n")):
        await asyncio.sleep(0.01)
    return [int(word) for word in log.read_text().split()]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_dead(pids: list[int]) -> None:
    while any(map(alive, pids)):
        await asyncio.sleep(0.01)


async def test_stop_ends_the_program_and_its_daemons(tmp_path):
    leashed = await start_leashed([sys.executable, "-c", PROGRAM], env={}, log_path=tmp_path / "log")
    pids = await pids_in(tmp_path / "log")
    await leashed.stop()
    assert not any(map(alive, pids))


async def test_the_exit_code_is_the_programs_own(tmp_path):
    leashed = await start_leashed(
        [sys.executable, "-c", "print('last words'); exit(7)"], env={}, log_path=tmp_path / "log"
    )
    assert await leashed.wait() == 7
    assert leashed.log_tail() == "last words"


async def test_a_program_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROGRAM
    leashed = await start_leashed([sys.executable, "-c", stubborn], env={}, log_path=tmp_path / "log")
    pids = await pids_in(tmp_path / "log")
    await leashed.stop()
    assert not any(map(alive, pids))


async def test_nothing_outlives_a_killed_owner(tmp_path):
    owner = f"""
import asyncio, pathlib, sys
from agentrl.tools.leash import start_leashed
async def main():
    await start_leashed([sys.executable, "-c", {PROGRAM!r}], env={{}}, log_path=pathlib.Path({str(tmp_path / "log")!r}))
    await asyncio.Event().wait()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", owner)
    pids = await pids_in(tmp_path / "log")
    process.kill()
    await process.wait()
    await asyncio.wait_for(until_dead(pids), 60)


async def test_nothing_outlives_a_killed_supervisor(tmp_path):
    leashed = await start_leashed([sys.executable, "-c", PROGRAM], env={}, log_path=tmp_path / "log")
    program, grandchild = await pids_in(tmp_path / "log")
    os.kill(leashed.process.pid, signal.SIGKILL)
    try:
        await leashed.wait()
        await asyncio.wait_for(until_dead([program]), 60)
    finally:
        if alive(grandchild):
            os.kill(grandchild, signal.SIGKILL)
