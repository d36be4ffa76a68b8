"""Creations that may have made a machine, though nobody got it: looked for by their label, and deleted.

One list for all of them together, however many there are. What an end comes before is left to ``agentrl gc``, for which
the ledger has the intention.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.errors import SandboxError, SandboxGone
from agentrl.lease.hurry import Hurry
from agentrl.lease.ledger import Ledger
from agentrl.lease.retries import retry_delay
from agentrl.lease.slots import Slot
from agentrl.sandbox import SandboxBackend
from agentrl.types import SandboxInfo

logger = logging.getLogger(__name__)

RUN_LABEL = "agentrl-run"
KEY_LABEL = "agentrl-key"
"""Different for each creation."""
LOOK_SEC = 5.0
SURE_SEC = 20.0
"""A list may lag behind: only what is not in one so long afterwards was never made."""
LAST_ATTEMPTS = 5


@dataclass(slots=True)
class _Doubt:
    since: float
    slot: Slot | None = None


@dataclass(slots=True)
class Doubts:
    """Those of one run."""

    backend: SandboxBackend
    run_id: str
    ledger: Ledger
    hurry: Hurry
    _doubts: dict[str, _Doubt] = field(default_factory=dict, init=False)
    _looking: asyncio.Task[None] | None = field(default=None, init=False)

    def add(self, key: str) -> None:
        """The creation that was labelled so failed, or was cancelled."""
        self._doubts[key] = _Doubt(time.monotonic())
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_now_and_then())

    def hold(self, key: str, slot: Slot) -> None:
        """What it may have made has this place until there is certainty."""
        if key in self._doubts:
            self._doubts[key].slot = slot
        else:
            slot.release()

    async def aclose(self) -> None:
        """Look a last time: what is not there now was never made."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        for attempt in range(LAST_ATTEMPTS if self._doubts else 0):
            error = await self._look(sure_sec=0.0)
            if error is None or self.hurry.on:
                break
            await self.hurry.nap(retry_delay(error, attempt, first_sec=1.0))
        for doubt in self._doubts.values():
            if doubt.slot:
                doubt.slot.release()

    async def _look_now_and_then(self) -> None:
        while self._doubts:
            await asyncio.sleep(LOOK_SEC)
            await self._look(sure_sec=SURE_SEC)

    async def _look(self, *, sure_sec: float) -> Exception | None:
        """Delete what is there, and forget what was not ``sure_sec`` after it failed. What stood in the way."""
        asked = time.monotonic()
        keys = [key for key, doubt in self._doubts.items() if doubt.since <= asked]
        try:
            listed = await self.backend.list({RUN_LABEL: self.run_id})
        except (SandboxError, OSError) as error:
            logger.warning("could not look for sandboxes that may have been made: %s", error)
            return error
        made = {info.labels[KEY_LABEL]: info for info in listed if info.labels.get(KEY_LABEL) in keys}
        errors = await self._delete(made)
        for key in set(keys) - made.keys():
            if asked - self._doubts[key].since >= sure_sec:
                self._settle(key)
        return errors[0] if errors else None

    async def _delete(self, made: Mapping[str, SandboxInfo]) -> Sequence[Exception]:
        results = await asyncio.gather(*(self._delete_one(key, info.id) for key, info in made.items()))
        return [error for error in results if error is not None]

    async def _delete_one(self, key: str, sandbox_id: str) -> Exception | None:
        try:
            await self.backend.delete(sandbox_id)
        except SandboxGone:
            pass
        except (SandboxError, OSError) as error:
            logger.warning("%s was made, nobody got it, and deleting it failed: %s", sandbox_id, error)
            return error
        self._settle(key)
        return None

    def _settle(self, key: str) -> None:
        self.ledger.failed(key)
        doubt = self._doubts.pop(key)
        if doubt.slot:
            doubt.slot.release()
