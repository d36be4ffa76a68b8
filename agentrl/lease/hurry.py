"""How long things may take while a lease is taken down: patiently, or in a hurry once somebody asked for it a second time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

HURRY_SEC = 10.0
"""In a hurry nothing is waited for longer than this."""


class Hurry:
    """A switch that is set once, and waiting that heeds it."""

    def __init__(self) -> None:
        self._set = asyncio.Event()

    @property
    def on(self) -> bool:
        """Whether it is set."""
        return self._set.is_set()

    def set(self) -> None:
        """From now on."""
        self._set.set()

    async def nap(self, seconds: float) -> None:
        """Sleep; in a hurry not at all."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._set.wait()

    async def wait(self, futures: Collection[asyncio.Future[Any]], seconds: float) -> bool:
        """Wait until all are done, so long at most; whether they are."""
        pending = set(futures)
        hurried = asyncio.ensure_future(self._set.wait())
        try:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + seconds
            while pending and not self.on and (left := deadline - loop.time()) > 0:
                watched = {*pending, hurried}
                done, _ = await asyncio.wait(watched, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
        finally:
            hurried.cancel()
        if pending and self.on:
            _, pending = await asyncio.wait(pending, timeout=HURRY_SEC)
        return not pending
