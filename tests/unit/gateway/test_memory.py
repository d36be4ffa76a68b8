"""Memory that closed sessions leave goes back to the system, and not at every close."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentrl.gateway.memory import Memory

BLOCK = 64 << 10  # below what the allocator maps on its own and gives back by itself


@pytest.fixture
def held():
    """A heap of 100 MB that is free but for one small block in every ten, so that the allocator cannot shrink it."""
    blocks = [b"x" * BLOCK for _ in range(1600)]
    kept = blocks[::10]
    del blocks
    return kept


def taken_mb():
    """What only we can give back: the system takes away the pages of files, and swaps, as it likes."""
    sizes = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(sizes[name].split()[0]) for name in ("RssAnon", "VmSwap")) / (1 << 10)


@pytest.mark.parametrize(
    ("most", "left", "returned"),
    [(1000, 500, True), (1000, 0, True), (1000, 501, False), (63, 0, False)],
    ids=["half", "all", "too few closed", "too few at all"],
)
def test_it_is_given_back_when_the_number_has_halved(held, most, left, returned):
    with ThreadPoolExecutor(1) as pool:
        memory = Memory(pool)
        memory.opened(most)
        before = taken_mb()
        memory.closed(left)
    assert (before - taken_mb() > 50) is returned
    assert len(held) == 160


def test_the_next_time_is_when_it_has_halved_again():
    with ThreadPoolExecutor(1) as pool:
        asked = []
        memory = Memory(pool)
        memory._trim = asked.append
        memory.opened(256)
        for left in range(255, -1, -1):
            memory.closed(left)
    assert len(asked) == 3  # at 128, 64 and 32


class Knot:
    """Garbage that only the collector can see."""

    def __init__(self):
        self.self = self


@pytest.fixture
def no_collector():
    """So that only what is asked for is collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_new_garbage_is_found_within_a_few_turns():
    knot = weakref.ref(Knot())
    with ThreadPoolExecutor(1) as pool:
        memory = Memory(pool)
        memory.turned()
        assert knot() is not None
        for _ in range(100):
            memory.turned()
    assert knot() is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("left", [0, 1])
def test_old_garbage_is_found_when_the_last_of_many_sessions_is_gone(left):
    knot = Knot()
    gc.collect()  # now it is old
    knot = weakref.ref(knot)
    with ThreadPoolExecutor(1) as pool:
        memory = Memory(pool)
        memory.opened(100)
        memory.closed(left)
    assert (knot() is None) is (left == 0)
