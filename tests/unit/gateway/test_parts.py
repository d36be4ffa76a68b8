"""Work of turns leaves the event loop room to breathe."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentrl.gateway.parts import TurnParts


@pytest.fixture
def parts():
    with ThreadPoolExecutor(2) as pool:
        yield TurnParts(None, None, None, (), 100, 1.0, pool)


async def test_a_burst_of_small_work_is_spread_over_many_passes_of_the_loop(parts):
    in_this_pass, most = 0, 0

    def work():
        nonlocal in_this_pass, most
        in_this_pass += 1
        most = max(most, in_this_pass)

    burst = asyncio.gather(*(parts.offload(1, work) for _ in range(200)))
    while not burst.done():
        in_this_pass = 0
        await asyncio.sleep(0)
    assert 0 < most <= 3


async def test_small_work_stays_and_big_work_goes_to_a_thread(parts):
    assert await parts.offload(1, threading.get_ident) == threading.get_ident()
    assert await parts.offload(10**6, threading.get_ident) != threading.get_ident()


async def test_a_cancelled_caller_waits_until_its_work_has_ended(parts):
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        started.set()
        assert release.wait(60)
        ended.set()

    task = asyncio.create_task(parts.offload(10**6, work))
    assert await asyncio.to_thread(started.wait, 60)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
