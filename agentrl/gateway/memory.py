"""Memory of a process that serves many sessions, and the pauses that looking after it costs.

What many sessions have left goes back to the system, what each read needs is kept at hand, and Python's garbage collector looks
at little at a time: while it looks, everybody waits.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from concurrent.futures import Executor
from contextlib import suppress

_MANY = 64
_YOUNG_TURNS = 64
# Above this glibc makes a mapping of its own for each block and undoes it afterwards. An event loop asks for 256 KiB for whatever
# it reads: that took more than all else that it does for a request.
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 1 << 20


def settle() -> None:
    """To be called once all is loaded, which stays until the end: the garbage collector need not look through it any more, which
    takes up to a second each time. What sessions keep is no garbage either: what is old it looks at hardly ever. And threads that
    render make way for the event loop ten times sooner than they would."""
    gc.freeze()
    gc.set_threshold(20_000, 2_000, 100)
    sys.setswitchinterval(0.0005)


class Memory:
    """Told of turns and of every session that opens and closes. Freed memory is returned each time their number has halved, where
    the C library is glibc; all objects are looked at when the last of many is gone."""

    def __init__(self, pool: Executor) -> None:
        self._pool, self._most, self._turns = pool, 0, 0
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)

    def turned(self) -> None:
        """A turn has ended. New objects are looked at every few turns, which takes a millisecond: the collector's own count only
        rises while more are made than end, and then it has a hundred thousand to look at."""
        self._turns += 1
        if self._turns % _YOUNG_TURNS == 0:
            gc.collect(0)

    def opened(self, sessions: int) -> None:
        """So many are open now."""
        self._most = max(self._most, sessions)

    def closed(self, sessions: int) -> None:
        """So many are left. The work is done in a thread: it takes some 30 ms for half a gigabyte."""
        if self._most < _MANY or 2 * sessions > self._most:
            return
        self._most = sessions
        with suppress(RuntimeError):  # the pool was shut down meanwhile: the gateway is closing
            if not sessions:
                self._pool.submit(gc.collect)
            if self._trim is not None:
                self._pool.submit(self._trim, 0)
