"""Tells the provider again and again that machines are in use, where it would stop them otherwise."""

from __future__ import annotations

import asyncio
import logging
import random

from agentrl.errors import SandboxGone
from agentrl.lease.machines import Machine, Machines

logger = logging.getLogger(__name__)

AT_ONCE = 8
CALL_SEC = 30.0


class Keeper:
    """Calls ``keep_alive`` of every open machine at least every ``every_sec`` seconds, as long as it runs. No failure ends it."""

    def __init__(self, machines: Machines, every_sec: float) -> None:
        self._machines, self._every_sec = machines, every_sec
        self._room = asyncio.Semaphore(AT_ONCE)
        self._failing: set[str] = set()
        self._gone: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._every_sec * random.uniform(0.5, 0.8))
            machines = [machine for machine in self._machines.open if machine.sandbox.id not in self._gone]
            results = await asyncio.gather(*map(self._keep, machines), return_exceptions=True)
            for machine, error in zip(machines, results, strict=True):
                self._note(machine, error)
            alive = {machine.sandbox.id for machine in self._machines.open}
            self._gone &= alive
            self._failing &= alive

    async def _keep(self, machine: Machine) -> None:
        async with self._room, asyncio.timeout(min(CALL_SEC, self._every_sec)):
            await machine.sandbox.keep_alive()

    def _note(self, machine: Machine, error: BaseException | None) -> None:
        """A failure is logged when it begins, not each time."""
        name = machine.sandbox.id
        if error is None:
            self._failing.discard(name)
        elif isinstance(error, SandboxGone):
            self._gone.add(name)
            self._machines.gone(machine)
        elif name not in self._failing:
            self._failing.add(name)
            logger.warning("%s could not be kept alive: %s: %s", name, type(error).__name__, error)
