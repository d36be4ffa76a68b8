"""Limits that processes share: real files, real processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from provider import until

from agentrl.errors import SettingsError
from agentrl.lease.limits import Limits, account_folder
from agentrl.lease.pace import Pace
from agentrl.lease.slots import Slots

HOLDER = """
import asyncio, sys
from pathlib import Path
from agentrl.lease.slots import Slots

async def main():
    slots = Slots(Path(sys.argv[1]), int(sys.argv[2]))
    held = [await slots.acquire() for _ in range(int(sys.argv[3]))]
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    held.pop().release()
    print("released", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""

RACER = """
import asyncio, os, sys
from pathlib import Path
from agentrl.lease.slots import Slots

async def main():
    folder = Path(sys.argv[1])
    slots, inside, most = Slots(folder / "slots", 3), folder / "inside", 0

    async def use(name):
        nonlocal most
        slot = await slots.acquire()
        mark = inside / f"{os.getpid()}-{name}"
        mark.touch()
        most = max(most, len(list(inside.iterdir())))
        await asyncio.sleep(0.01)
        mark.unlink()
        slot.release()

    await asyncio.gather(*(use(name) for name in range(20)))
    print(most)

asyncio.run(main())
"""


def start(script: str, *words: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_share_places_and_a_killed_one_frees_its_own(tmp_path: Path):
    with start(HOLDER, tmp_path / "slots", 3, 3) as other:
        assert other.stdout.readline() == "held\n"
        slots = Slots(tmp_path / "slots", 3)
        assert slots.try_acquire() is None
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "released\n"
        assert slots.try_acquire() is not None
        assert slots.try_acquire() is None
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert slots.try_acquire() is not None
        assert slots.try_acquire() is not None
        assert slots.try_acquire() is None
        slots.close()


def test_two_busy_processes_never_hold_more_than_allowed_together(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    racers = [start(RACER, tmp_path) for _ in range(2)]
    most = [int(racer.communicate(timeout=300)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert 1 <= max(most) <= 3


async def test_who_waits_elsewhere_is_noticed_and_gets_its_turn(tmp_path: Path):
    """Two openings of the file are to each other what two processes are."""
    ours, theirs = Slots(tmp_path / "slots", 1), Slots(tmp_path / "slots", 1)
    held = await ours.acquire()
    assert not ours.waited_for()
    waiting = asyncio.create_task(theirs.acquire())
    await until(ours.waited_for)
    held.release()

    async def greedy():
        while not waiting.done():
            (await ours.acquire()).release()
            await asyncio.sleep(0)

    async with asyncio.timeout(120):
        await asyncio.gather(*(greedy() for _ in range(8)))
    (await waiting).release()
    assert not ours.waited_for()
    ours.close()
    theirs.close()


async def test_nobody_hands_a_place_on_at_home_while_others_wait(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("agentrl.lease.slots.POLL_SEC", 3600.0)
    ours, theirs = Slots(tmp_path / "slots", 1), Slots(tmp_path / "slots", 1)
    held = await ours.acquire()
    waiting = [asyncio.create_task(slots.acquire()) for slots in (ours, theirs)]
    await until(ours.waited_for)
    await until(theirs.waited_for)
    held.release()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in waiting), "both look when chance tells them to"
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    ours.close()
    theirs.close()


async def test_first_come_first_served_and_the_urgent_before(tmp_path: Path):
    slots, order = Slots(tmp_path / "slots", 1), []
    held = await slots.acquire()

    async def use(name, *, urgent=False):
        slot = await slots.acquire(urgent=urgent)
        order.append(name)
        slot.release()

    waiting = [asyncio.create_task(use(name)) for name in "abc"]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(use("grading", urgent=True)))
    gone = asyncio.create_task(use("gone"))
    await asyncio.sleep(0)
    assert slots.try_acquire() is None
    gone.cancel()
    held.release()
    assert slots.try_acquire() is None, "those who wait come first"
    await asyncio.gather(*waiting)
    assert order == ["grading", "a", "b", "c"]
    slots.close()


async def test_a_place_is_released_once_and_moves(tmp_path: Path):
    slots = Slots(tmp_path / "slots", 1)
    first = await slots.acquire()
    second = first.moved()
    first.release()
    assert slots.try_acquire() is None
    second.release()
    second.release()
    assert slots.try_acquire() is not None
    slots.close()


async def test_no_limit_is_none(tmp_path: Path):
    limits = Limits(tmp_path, starting=1)
    held = [await limits.live.acquire() for _ in range(1000)]
    assert not limits.live.waited_for()
    for slot in held:
        slot.release()
    limits.close()


# ------------------------------------------------------------------------------------------------------------ pace


async def test_the_rate_holds_over_all_who_share_it(tmp_path: Path):
    paces = [Pace(tmp_path / "pace", 50.0) for _ in range(2)]
    started = time.time()
    await asyncio.gather(*(paces[i % 2].wait() for i in range(11)))
    assert time.time() - started >= 10 / 50.0
    paces.append(Pace(tmp_path / "slow", 0.01))
    await paces[2].wait()
    assert not paces[2].free()
    for pace in paces:
        pace.close()


async def test_a_brake_holds_everybody_and_is_never_shortened(tmp_path: Path):
    one, other = Pace(tmp_path / "pace", 0.0), Pace(tmp_path / "pace", 0.0)
    await one.wait()
    started = time.time()
    one.brake(0.2)
    one.brake(0.01)
    await asyncio.gather(other.wait(), other.calm())
    assert time.time() - started >= 0.2
    one.brake(100.0)
    assert not other.free()
    one.close()
    other.close()


@pytest.mark.parametrize("content", [b"", b"torn", b"\xff" * 8, b"\x00\x00\x00\x00\x00\x00\xf0\x7f"], ids=str)
async def test_a_broken_file_stops_nobody(tmp_path: Path, content: bytes):
    (tmp_path / "pace").write_bytes(content)
    pace = Pace(tmp_path / "pace", 1000.0)
    async with asyncio.timeout(60):
        await pace.wait()
    pace.close()


# --------------------------------------------------------------------------------------------------------- accounts


def test_accounts_have_folders_of_their_own_that_name_no_key(tmp_path: Path):
    folders = {account_folder(tmp_path, name, account) for name in ("e2b", "daytona") for account in ("", "secret")}
    assert len(folders) == 4
    assert not any("secret" in str(folder) for folder in folders)


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path):
    (tmp_path / "theirs").symlink_to(tmp_path)
    with pytest.raises(SettingsError, match="AGENTRL_LIMITS_DIR"):
        account_folder(tmp_path / "theirs", "e2b", "")
