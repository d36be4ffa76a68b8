"""Giving memory back to the system when many sessions have closed: a C allocator keeps what was freed, in case it is wanted again."""

from __future__ import annotations

import ctypes
from concurrent.futures import Executor

_MANY = 64


class Memory:
    """Told of every session that opens and closes, it has freed memory returned each time their number has halved.

    Where the C library has no ``malloc_trim`` (it is glibc's) nothing happens.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool, self._most = pool, 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def opened(self, sessions: int) -> None:
        """So many are open now."""
        self._most = max(self._most, sessions)

    def closed(self, sessions: int) -> None:
        """So many are left. The work is done in a thread: it takes some 30 ms for half a gigabyte."""
        if self._trim is None or self._most < _MANY or 2 * sessions > self._most:
            return
        self._most = sessions
        self._pool.submit(self._trim, 0)
