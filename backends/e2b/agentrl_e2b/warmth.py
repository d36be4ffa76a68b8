"""No burst on cold connections: the first request goes alone, and then not too many at once.

More than about 126 first requests at once over TLS and HTTP/2 break the SDK's transport before they leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

AT_ONCE = 100


class Warmth:
    """One gate for each event loop that comes by."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, _Gate] = WeakKeyDictionary()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """For the block this request is under way."""
        loop = asyncio.get_running_loop()
        gate = self._gates.get(loop) or self._gates.setdefault(loop, _Gate(self._at_once))
        async with gate.room:
            if not gate.warm.is_set():
                async with gate.first:
                    if not gate.warm.is_set():
                        try:
                            yield
                        finally:
                            gate.warm.set()
                        return
            yield


class _Gate:
    def __init__(self, at_once: int) -> None:
        self.room = asyncio.Semaphore(at_once)
        self.first = asyncio.Lock()
        self.warm = asyncio.Event()
