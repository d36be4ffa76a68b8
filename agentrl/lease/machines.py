"""The machines that exist because of a lease, and how each is closed: often enough, in bounded time, on the record.

Not here: how one comes to be (:mod:`agentrl.lease.starter`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl.errors import SandboxGone
from agentrl.lease.hurry import Hurry
from agentrl.lease.ledger import Ledger
from agentrl.lease.retries import retry_delay
from agentrl.lease.slots import Slot
from agentrl.sandbox import Sandbox
from agentrl.types import SandboxSpec

logger = logging.getLogger(__name__)

CLOSE_SEC = 60.0
"""How long one attempt at closing may take, and how long all of them may at the end of a run."""
CLOSE_ATTEMPTS = 5
"""How often before the block goes on; then it is tried in the background."""
FIRST_RETRY_SEC = 1.0


@dataclass(slots=True, eq=False)
class Machine:
    """One that exists. ``spec``: with its layers baked; ``ends_at``: when its lifetime is over, on the monotonic clock;
    ``slot``: its place among the live ones, given back when its deletion is confirmed."""

    sandbox: Sandbox
    spec: SandboxSpec
    ends_at: float
    slot: Slot


class Machines:
    """All of them."""

    def __init__(self, ledger: Ledger, hurry: Hurry) -> None:
        self._ledger, self._hurry = ledger, hurry
        self._open: dict[str, Machine] = {}
        self._later: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> Sequence[Machine]:
        """Those that were not closed yet."""
        return tuple(self._open.values())

    def add(self, machine: Machine) -> Machine:
        """One more exists; the ledger has it already."""
        self._open[machine.sandbox.id] = machine
        return machine

    def gone(self, machine: Machine) -> None:
        """The provider has lost it."""
        logger.warning("sandbox %s does not exist any more, though nobody closed it", machine.sandbox.id)
        self._ledger.gone(machine.sandbox.id)

    async def close(self, machine: Machine) -> None:
        """Returns when it is deleted, or when that has to be tried again later. Never raises but for cancellation, and that at the end."""
        await until_done(asyncio.ensure_future(self._close(machine, CLOSE_ATTEMPTS)))

    def close_soon(self, machine: Machine) -> None:
        """The same, without waiting for it."""
        self._in_background(machine, 0)

    async def aclose(self) -> None:
        """Close all that are open, within :data:`CLOSE_SEC`."""
        for task in self._later:
            task.cancel()
        if self._later:
            await asyncio.wait(self._later)
        closing = [asyncio.ensure_future(self._close(machine, CLOSE_ATTEMPTS, last=True)) for machine in self.open]
        if closing and not await self._hurry.wait(closing, CLOSE_SEC):
            for task in closing:
                task.cancel()
            await asyncio.wait(closing)
        for machine in self.open:
            logger.error("%s was not closed: its lifetime ends it, or `agentrl gc`", machine.sandbox.id)
            machine.slot.release()
        self._open.clear()

    async def _close(self, machine: Machine, attempts: int, *, last: bool = False) -> None:
        for attempt in range(attempts):
            error = await self._try(machine)
            if error is None:
                return
            logger.warning("closing %s failed: %s", machine.sandbox.id, error)
            if self._hurry.on or attempt + 1 == attempts:
                break
            await self._hurry.nap(retry_delay(error, attempt, first_sec=FIRST_RETRY_SEC))
        if not last:
            self._in_background(machine, attempts)

    def _in_background(self, machine: Machine, attempt: int) -> None:
        task = asyncio.ensure_future(self._close_later(machine, attempt))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _close_later(self, machine: Machine, attempt: int) -> None:
        while (error := await self._try(machine)) is not None:
            await asyncio.sleep(retry_delay(error, attempt, first_sec=FIRST_RETRY_SEC))
            attempt += 1

    async def _try(self, machine: Machine) -> Exception | None:
        """What stood in the way."""
        if machine.sandbox.id not in self._open:
            return None
        closing = asyncio.ensure_future(machine.sandbox.close())
        try:
            in_time = await self._hurry.wait([closing], CLOSE_SEC)
        finally:
            if not closing.done():
                closing.cancel()
        error: BaseException | None = TimeoutError("it took too long")
        if in_time:
            error = TimeoutError("it was cancelled") if closing.cancelled() else closing.exception()
        if error is None or isinstance(error, SandboxGone):
            self._ledger.closed(machine.sandbox.id)
            self._open.pop(machine.sandbox.id, None)
            machine.slot.release()
            return None
        if not isinstance(error, Exception):
            raise error
        return error


async def until_done(task: asyncio.Future[None], *, cancelled_meanwhile: Callable[[], None] = lambda: None) -> None:
    """Await ``task`` to its end even if we are cancelled meanwhile; the cancellation is passed on afterwards."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
            cancelled_meanwhile()
    if cancelled:
        raise asyncio.CancelledError
    task.result()
