"""Machines that are started before anybody asks, for the tasks that come next.

They take only what nobody waits for, and give it back when somebody does. One is handed out when it is exactly what is asked
for, will live long enough, and still answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from agentrl.errors import SandboxError, SandboxThrottled
from agentrl.lease.machines import Machine, Machines
from agentrl.lease.starter import Starter, Wish
from agentrl.types import SandboxSpec

logger = logging.getLogger(__name__)

WARM = "warm"
"""The rollout that their labels name."""
IDLE_SEC = 1800.0
"""How long one may wait: so much longer than a rollout needs it does it live."""
CHECK_SEC = 1.0
ANSWER_SEC = 10.0
GRACE_SEC = 30.0
"""What is not wanted any more is kept so long: whoever has just begun is not among those who wait, and will ask for it."""
PAUSE_SEC = 30.0
"""After a failure nothing is started ahead for a while: those who need machines now are not to compete with it."""


class WarmPool:
    """At most ``size`` machines ahead, each for a rollout that lives ``lifetime_sec`` from its start."""

    def __init__(self, starter: Starter, machines: Machines, *, size: int, lifetime_sec: float) -> None:
        self._starter, self._machines = starter, machines
        self._size, self._lifetime_sec = size, lifetime_sec
        self._wanted: Sequence[SandboxSpec] = ()
        self._baked: Sequence[SandboxSpec] | None = ()
        self._idle: list[Machine] = []
        self._unwanted: dict[Machine, float] = {}
        self._starting: dict[asyncio.Task[None], SandboxSpec] = {}
        self._changed = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._paused_until = 0.0
        self.hits = self.misses = 0

    def want(self, specs: Sequence[SandboxSpec]) -> None:
        """What will be asked for next, in this order; what was wanted before and is not any more is
        closed after a while."""
        if self._size:
            self._wanted, self._baked = specs[: self._size], None
            self._changed.set()
            self._worker = self._worker or asyncio.ensure_future(self._work())

    async def take(self, spec: SandboxSpec, ends_at: float) -> Machine | None:
        """A warm machine that is just so and lives until ``ends_at``."""
        if not self._size:
            return None
        while machine := next((m for m in self._idle if m.spec == spec and m.ends_at >= ends_at), None):
            self._forget(machine)
            if await self._answers(machine):
                self.hits += 1
                return machine
        self.misses += 1
        return None

    def give_up(self) -> None:
        """Somebody needs a place: close the machine that would be needed last."""
        if self._idle:
            unwanted = [machine for machine in self._idle if machine in self._unwanted]
            self._close(unwanted[-1] if unwanted else self._idle[-1])

    async def aclose(self) -> None:
        """Start nothing any more. The machines are closed with all others."""
        running = [*self._starting, *([self._worker] if self._worker else [])]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._size, self._idle = 0, []

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            await self._catch_up()
            if self._idle and self._starter.limits.live.waited_for():
                self.give_up()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SEC):
                    await self._changed.wait()

    async def _catch_up(self) -> None:
        """Close what is of no use any more, start what is missing."""
        if self._baked is None and (self._paused or not await self._bake(self._wanted)):
            return
        missing = list(self._baked or ())
        now = time.monotonic()
        for machine in tuple(self._idle):
            if machine.ends_at < now + self._lifetime_sec:
                self._close(machine)
            elif machine.spec in missing:
                missing.remove(machine.spec)
                self._unwanted.pop(machine, None)
            elif now - self._unwanted.setdefault(machine, now) >= GRACE_SEC:
                self._close(machine)
        for spec in self._starting.values():
            if spec in missing:
                missing.remove(spec)
        room = 0 if self._paused else max(0, self._size - len(self._idle) - len(self._starting))
        for spec in missing[:room]:
            task = asyncio.ensure_future(self._start(spec))
            self._starting[task] = spec
            task.add_done_callback(self._started)

    async def _bake(self, wanted: Sequence[SandboxSpec]) -> bool:
        """Learn how what is wanted is asked of the provider; whether that is known now, and still of interest."""
        once = {id(spec): spec for spec in wanted}
        baking = (self._starter.bake(self._wish(spec)) for spec in once.values())
        results = await asyncio.gather(*baking, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                self._pause(result)
                return False
        baked = {key: wish.spec for key, wish in zip(once, results, strict=True) if isinstance(wish, Wish)}
        if wanted is self._wanted:
            self._baked = [baked[id(spec)] for spec in wanted]
        return wanted is self._wanted

    async def _start(self, spec: SandboxSpec) -> None:
        machine = await self._starter.start_ahead(self._wish(spec))
        if machine is not None:
            self._idle.append(machine)

    def _started(self, task: asyncio.Task[None]) -> None:
        del self._starting[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._pause(error)

    def _close(self, machine: Machine) -> None:
        self._forget(machine)
        self._machines.close_soon(machine)

    def _forget(self, machine: Machine) -> None:
        self._idle.remove(machine)
        self._unwanted.pop(machine, None)

    async def _answers(self, machine: Machine) -> bool:
        try:
            if (await machine.sandbox.exec("true", timeout_sec=ANSWER_SEC, idempotent=True)).ok:
                return True
        except SandboxError as error:
            logger.warning("%s was started ahead and does not answer: %s", machine.sandbox.id, error)
        except BaseException:
            self._machines.close_soon(machine)
            raise
        self._machines.close_soon(machine)
        return False

    def _wish(self, spec: SandboxSpec) -> Wish:
        now = time.monotonic()
        return Wish(spec, WARM, now + self._lifetime_sec + IDLE_SEC, now + self._lifetime_sec)

    @property
    def _paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def _pause(self, error: BaseException) -> None:
        self._paused_until = time.monotonic() + PAUSE_SEC
        level = logging.DEBUG if isinstance(error, SandboxThrottled) else logging.WARNING
        logger.log(level, "no sandbox was started ahead: %s", error)
