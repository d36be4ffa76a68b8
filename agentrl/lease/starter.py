"""Making machines: within the account's limits, tried again where that helps, on the record before and after.

A creation is a task of its own. Whoever waits for it may be cancelled at any moment: it goes on, counts as one under way, and
what it makes is closed. Not here: what becomes of a machine afterwards (:mod:`agentrl.lease.machines`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agentrl.errors import SandboxRefused, SandboxThrottled, SandboxTransient
from agentrl.lease.doubts import KEY_LABEL, RUN_LABEL, Doubts
from agentrl.lease.hurry import Hurry
from agentrl.lease.ledger import Ledger
from agentrl.lease.limits import Limits
from agentrl.lease.machines import CLOSE_SEC, Machine, Machines
from agentrl.lease.retries import Brake, Outage, retry_delay
from agentrl.lease.slots import Slot
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.types import SandboxSpec

logger = logging.getLogger(__name__)

ROLLOUT_LABEL = "agentrl-rollout"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants which machine. ``ends_at``: when it is to die by itself; ``give_up_at``: until when to try, both on the
    monotonic clock; ``urgent``: before those that are not."""

    spec: SandboxSpec
    rollout_id: str
    ends_at: float
    give_up_at: float
    urgent: bool = False


@dataclass(slots=True)
class Starter:
    """Makes machines of one backend for one run."""

    backend: SandboxBackend
    run_id: str
    ledger: Ledger
    limits: Limits
    machines: Machines
    hurry: Hurry
    boot_retries: int
    make_room: Callable[[], None]
    _outage: Outage = field(default_factory=Outage, init=False)
    _brake: Brake = field(init=False)
    _doubts: Doubts = field(init=False)
    _under_way: set[asyncio.Future[Any]] = field(default_factory=set, init=False)
    _late: set[asyncio.Future[Any]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._brake = Brake(self.limits.pace)
        self._doubts = Doubts(self.backend, self.run_id, self.ledger, self.hurry)

    async def bake(self, wish: Wish) -> Wish:
        """The same with its layers in its image. Raises: like :meth:`start`."""
        spec = wish.spec
        if not spec.layers:
            return wish

        async def prepare() -> SandboxSpec:
            return replace(spec, image=await self.backend.prepare(spec.image, spec.resources, spec.layers), layers=())

        late = "its layers were not baked"
        return replace(wish, spec=await self._in_time(wish, late, lambda tell: self._retried(wish, prepare, tell)))

    async def start(self, wish: Wish) -> Machine:
        """A machine. Raises: what the last attempt raised; SandboxThrottled when there was no time for another."""
        limits = f"SWE_BOOT_CONCURRENCY, SWE_BOOTS_PER_SEC or SWE_MAX_SANDBOXES ({self.limits.live.count})"
        return await self._in_time(wish, f"{limits} left no room", lambda tell: self._start(wish, tell))

    async def start_ahead(self, wish: Wish) -> Machine | None:
        """One attempt at a machine for which nobody has to wait; None when somebody would. Raises: like :meth:`start`."""
        limits = self.limits
        if limits.live.waited_for() or limits.starting.waited_for() or not limits.pace.free():
            return None
        live = limits.live.try_acquire()
        try:
            starting = limits.starting.try_acquire() if live else None
            return await self._once(wish, live, await self._paced(starting)) if live and starting else None
        except SandboxThrottled as error:
            self._brake.throttled(error)
            raise
        finally:
            if live:
                live.release()

    async def aclose(self) -> None:
        """Wait for what is under way and close it; what takes longer than :data:`CLOSE_SEC` is cancelled. Then look for what
        may have been made all the same."""
        for creation in () if await self.hurry.wait(self._under_way, CLOSE_SEC) else self._under_way:
            creation.cancel()
        await self.hurry.wait(self._late, CLOSE_SEC)
        looking = asyncio.ensure_future(self._doubts.aclose())
        if not await self.hurry.wait([looking], CLOSE_SEC):
            looking.cancel()
            await asyncio.wait([looking])

    # --------------------------------------------------------------------------------------------------- attempts

    async def _in_time(self, wish: Wish, late: str, work: Callable[[Callable[[str], None]], Awaitable[T]]) -> T:
        """What ``work`` returns, unless the wish is given up before: then ``late`` is why, or what ``work`` told last."""
        told = [late]
        started = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, wish.give_up_at - started)) as limit:
                return await work(told.append)
        except TimeoutError as error:
            if not limit.expired():
                raise
            waited = time.monotonic() - started
            raise SandboxThrottled(f"no sandbox for {wish.rollout_id} within {waited:.0f} s: {told[-1]}") from error

    async def _start(self, wish: Wish, tell: Callable[[str], None]) -> Machine:
        live = self.limits.live.try_acquire()
        if live is None:
            self.make_room()
            live = await self.limits.live.acquire(urgent=wish.urgent)
        held = live

        async def once() -> Machine:
            return await self._once(wish, held, await self._starting(wish))

        try:
            return await self._retried(wish, once, tell)
        finally:
            held.release()

    async def _starting(self, wish: Wish) -> Slot:
        return await self._paced(await self.limits.starting.acquire(urgent=wish.urgent))

    async def _paced(self, slot: Slot) -> Slot:
        try:
            await self.limits.pace.wait()
        except BaseException:
            slot.release()
            raise
        return slot

    async def _retried(self, wish: Wish, work: Callable[[], Awaitable[T]], tell: Callable[[str], None]) -> T:
        attempt = 0
        while True:
            try:
                return await work()
            except SandboxThrottled as error:
                self._brake.throttled(error)
                tell(str(error))
                logger.info("told to slow down while starting a sandbox of %s: %s", wish.rollout_id, error)
                await self.limits.pace.calm()
            except SandboxTransient as error:
                if attempt >= self.boot_retries:
                    raise
                tell(str(error))
                logger.warning("sandbox of %s did not start, trying again: %s", wish.rollout_id, error)
                await asyncio.sleep(retry_delay(error, attempt))
                attempt += 1

    async def _once(self, wish: Wish, live: Slot, starting: Slot) -> Machine:
        """One attempt. When it may have made a machine, or is still at it, it takes the place among the live ones along."""
        key = secrets.token_hex(8)
        creation = self._task(self._create(wish, key), self._under_way)
        creation.add_done_callback(lambda _: starting.release())
        try:
            sandbox = await asyncio.shield(creation)
        except asyncio.CancelledError:
            self._task(self._close_late(creation, wish, key, live.moved()), self._late)
            raise
        except (SandboxTransient, SandboxRefused):
            raise
        except BaseException:
            self._doubts.hold(key, live.moved())
            raise
        self._brake.released()
        return self.machines.add(Machine(sandbox, wish.spec, wish.ends_at, live.moved()))

    async def _create(self, wish: Wish, key: str) -> Sandbox:
        labels = {RUN_LABEL: self.run_id, ROLLOUT_LABEL: wish.rollout_id, KEY_LABEL: key}
        with self._outage.watch():
            self.ledger.intended(key, rollout_id=wish.rollout_id)
            try:
                lifetime_sec = max(1.0, wish.ends_at - time.monotonic())
                sandbox = await self.backend.create(wish.spec, labels=labels, lifetime_sec=lifetime_sec)
                self.ledger.created(sandbox.id, rollout_id=wish.rollout_id, key=key)
            except (SandboxThrottled, SandboxRefused):
                self.ledger.failed(key)
                raise
            except BaseException:
                self._doubts.add(key)
                raise
        return sandbox

    async def _close_late(self, creation: asyncio.Future[Sandbox], wish: Wish, key: str, live: Slot) -> None:
        try:
            await asyncio.wait([creation])
        finally:
            made = creation.done() and not creation.cancelled() and creation.exception() is None
            if made:
                machine = self.machines.add(Machine(creation.result(), wish.spec, wish.ends_at, live))
            else:
                self._doubts.hold(key, live)
        if made:
            await self.machines.close(machine)

    def _task(self, work: Coroutine[Any, Any, T], group: set[asyncio.Future[Any]]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        group.add(task)
        task.add_done_callback(group.discard)
        return task
