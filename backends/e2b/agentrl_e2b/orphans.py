"""Machines that were created for nobody: the answer was lost, or whoever asked has left. They are looked for and deleted.

What is not found here dies by its lifetime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from agentrl.api import SandboxError, SandboxInfo
from agentrl_e2b.errors import may_have_worked

if TYPE_CHECKING:
    from e2b import AsyncSandbox

logger = logging.getLogger(__name__)

PAUSES_SEC = (0.0, 1.0, 3.0, 10.0, 30.0)
"""A creation that takes longer than anybody waits may come into being after the first look."""
PATIENCE_SEC = 0.5
DELETE_ATTEMPTS = 5
DELETE_PAUSE_SEC = 0.5


class Orphans:
    """Searches under way, of any event loop. ``find`` and ``delete`` are the backend's."""

    def __init__(
        self,
        find: Callable[[Mapping[str, str]], Awaitable[Sequence[SandboxInfo]]],
        delete: Callable[[str], Awaitable[None]],
    ) -> None:
        self._find, self._delete = find, delete
        self._searches: dict[asyncio.Task[None], asyncio.Event] = {}

    async def remove(self, making: asyncio.Future[AsyncSandbox], labels: Mapping[str, str]) -> None:
        """Delete what ``making`` made or may have made, which alone has ``labels``. What takes long goes on behind our back."""
        hurry = asyncio.Event()
        search = asyncio.ensure_future(self._search(making, labels, hurry))
        self._searches[search] = hurry
        search.add_done_callback(lambda done: self._searches.pop(done, None))
        await asyncio.wait([search], timeout=PATIENCE_SEC)

    async def aclose(self) -> None:
        """Look once more and be done with it."""
        here = asyncio.get_running_loop()
        ours = [search for search in self._searches if search.get_loop() is here]
        for search in ours:
            self._searches[search].set()
        await asyncio.gather(*ours, return_exceptions=True)

    async def _search(
        self, making: asyncio.Future[AsyncSandbox], labels: Mapping[str, str], hurry: asyncio.Event
    ) -> None:
        await asyncio.wait([making])
        error = making.exception()
        if error is None:
            await self._remove(making.result().sandbox_id)
        elif may_have_worked(error):
            await self._look_for(labels, hurry)

    async def _look_for(self, labels: Mapping[str, str], hurry: asyncio.Event) -> None:
        for pause_sec in PAUSES_SEC:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_sec):
                    await hurry.wait()
            try:
                found = await self._find(labels)
            except SandboxError as error:
                logger.warning("cannot look for the machine of a creation that failed: %s", error)
                continue
            for info in found:
                await self._remove(info.id)
            if found:
                return

    async def _remove(self, sandbox_id: str) -> None:
        for attempt in range(DELETE_ATTEMPTS):
            try:
                await self._delete(sandbox_id)
            except SandboxError as error:
                logger.warning("deleting %s failed: %s", sandbox_id, error)
                await asyncio.sleep(DELETE_PAUSE_SEC * 2**attempt)
            else:
                return
        logger.error("%s was not deleted: its lifetime ends it, or `agentrl gc`", sandbox_id)
