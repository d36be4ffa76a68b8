"""Coroutines in a loop of their own, whichever loop asks."""

import asyncio
import threading

import pytest

from agentrl.api import SandboxError
from agentrl_daytona.owner import OwnerLoop


@pytest.fixture
async def owner():
    owner = OwnerLoop("test-owner")
    yield owner
    await owner.stop()


async def where():
    return threading.current_thread().name, id(asyncio.get_running_loop())


async def test_without_work_there_is_no_thread(owner):
    assert not owner.started
    await owner.run(where())
    assert owner.started


async def test_all_loops_meet_in_one(owner):
    elsewhere = [asyncio.to_thread(asyncio.run, owner.run(where())) for _ in range(3)]
    places = {await owner.run(where()), *await asyncio.gather(*elsewhere)}
    assert len(places) == 1 and places.pop()[0] == "test-owner"


async def test_what_runs_there_may_ask_again(owner):
    async def nested():
        return await owner.run(where())

    assert await owner.run(nested()) == await owner.run(where())


async def test_errors_come_back(owner):
    async def fail():
        raise SandboxError("there")

    with pytest.raises(SandboxError, match="there"):
        await owner.run(fail())


async def test_a_cancelled_caller_leaves_when_the_work_has_ended(owner):
    began, cleaned = threading.Event(), []

    async def work():
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    caller = asyncio.create_task(owner.run(work()))
    await asyncio.to_thread(began.wait)
    caller.cancel()
    await asyncio.sleep(0)
    caller.cancel()  # impatience changes nothing
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert cleaned == [True]


async def test_what_was_made_for_a_cancelled_caller_is_undone(owner):
    began, undone = threading.Event(), []

    async def stubborn():
        began.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "machine"

    async def undo(made):
        undone.append(made)

    caller = asyncio.create_task(owner.run(stubborn(), undo=undo))
    await asyncio.to_thread(began.wait)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert undone == ["machine"]


async def test_stopping_ends_what_runs_and_it_can_be_used_again(owner):
    began = threading.Event()

    async def forever():
        began.set()
        await asyncio.sleep(600)

    caller = asyncio.create_task(owner.run(forever()))
    await asyncio.to_thread(began.wait)
    await owner.stop()
    with pytest.raises(SandboxError, match="closed"):
        await caller
    assert "test-owner" not in {thread.name for thread in threading.enumerate()}
    assert (await owner.run(where()))[0] == "test-owner"
