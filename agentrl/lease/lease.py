"""Machines for a block of code: there when it begins, gone when it ends, however it ends.

The parts: :mod:`~agentrl.lease.starter` makes machines, :mod:`~agentrl.lease.machines` closes them,
:mod:`~agentrl.lease.limits` bounds them, :mod:`~agentrl.lease.warm` has some ready, :mod:`~agentrl.lease.keeper` keeps them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentrl.lease.hurry import Hurry
from agentrl.lease.keeper import Keeper
from agentrl.lease.ledger import Ledger
from agentrl.lease.limits import Limits, account_folder
from agentrl.lease.machines import Machine, Machines, until_done
from agentrl.lease.starter import Starter, Wish
from agentrl.lease.warm import WarmPool
from agentrl.registry import same_name
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.settings import Settings
from agentrl.types import SandboxSpec


class Lease:
    """The one owner of retries for machines. ``boot_retries``: further attempts after the first; ``warm``: how many are started
    ahead, for blocks that need a lifetime of ``warm_lifetime_sec``. ``limits`` None: shared only by leases with this ledger."""

    def __init__(
        self,
        backend: SandboxBackend,
        *,
        run_id: str,
        ledger: Path,
        backend_name: str = "",
        limits: Limits | None = None,
        boot_concurrency: int = 8,
        boot_retries: int = 3,
        warm: int = 0,
        warm_lifetime_sec: float = 0.0,
    ) -> None:
        self.backend, self._hurry = backend, Hurry()
        self._limits = limits or Limits(ledger.parent / "limits", starting=boot_concurrency)
        self._ledger = Ledger(ledger, run_id, backend_name)
        self._machines = Machines(self._ledger, self._hurry)
        self._starter = Starter(
            backend,
            run_id=run_id,
            ledger=self._ledger,
            limits=self._limits,
            machines=self._machines,
            hurry=self._hurry,
            boot_retries=boot_retries,
            make_room=lambda: self._warm.give_up(),
        )
        self._warm = WarmPool(self._starter, self._machines, size=warm, lifetime_sec=warm_lifetime_sec)
        self._keeping: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(
        self,
        spec: SandboxSpec,
        *,
        rollout_id: str,
        lifetime_sec: float,
        patience_sec: float | None = None,
        urgent: bool = False,
    ) -> AsyncIterator[Sandbox]:
        """One machine for the block, closed when it ends however it ends. ``spec.layers`` are baked first.

        ``lifetime_sec``, counted from this call: when it dies by itself, whatever became of us; ``patience_sec``: how long to try
        (None: as long). The ``urgent`` are served first, but never with what was started ahead.

        Raises: what baking or the last attempt to create raised, SandboxThrottled when patience ran out before. An error of
        closing is logged, never raised: it must not hide the block's own; it is tried again until :meth:`aclose`, the ledger
        has the machine as open, and its lifetime ends it.
        """
        now = time.monotonic()
        patience = lifetime_sec if patience_sec is None else patience_sec
        wish = Wish(spec, rollout_id, now + lifetime_sec, now + patience, urgent)
        machine = await self._machine(wish)
        try:
            yield machine.sandbox
        finally:
            await self._machines.close(machine)

    def warm(self, specs: Sequence[SandboxSpec]) -> None:
        """What will be opened next, in this order; replaces what was said before."""
        self._warm.want(specs)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often a machine was there already, and how often not. Both 0 when none are started ahead."""
        return {"hits": self._warm.hits, "misses": self._warm.misses}

    def hurry(self) -> None:
        """From now on wait for nothing longer than a few seconds. Every machine is still asked to go, once."""
        self._hurry.set()

    async def aclose(self) -> None:
        """Close what is open, also creations that were cancelled while under way; in bounded time. Cancelled: in a hurry."""
        await until_done(asyncio.ensure_future(self._aclose()), cancelled_meanwhile=self.hurry)

    async def _machine(self, wish: Wish) -> Machine:
        self._keep()
        wish = await self._starter.bake(wish)
        if not wish.urgent and (machine := await self._warm.take(wish.spec, wish.ends_at)):
            self._ledger.taken(machine.sandbox.id, rollout_id=wish.rollout_id)
            return machine
        return await self._starter.start(wish)

    def _keep(self) -> None:
        every_sec = self.backend.capabilities.keep_alive_sec
        if self._keeping is None and every_sec is not None:
            self._keeping = asyncio.ensure_future(Keeper(self._machines, every_sec).run())

    async def _aclose(self) -> None:
        await self._warm.aclose()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._starter.aclose()
        await self._machines.aclose()
        self._ledger.close()
        self._limits.close()


def make_lease(
    backend: SandboxBackend, settings: Settings, *, run_id: str, ledger: Path, warm_lifetime_sec: float = 0.0
) -> Lease:
    """A lease as the settings want it. Raises: SettingsError."""
    name = same_name(settings.sandbox)
    limits = Limits(
        account_folder(settings.limits_dir, name, backend.capabilities.account),
        starting=settings.boot_concurrency,
        per_sec=settings.boots_per_sec,
        live=settings.max_sandboxes,
    )
    return Lease(
        backend,
        run_id=run_id,
        ledger=ledger,
        backend_name=name,
        limits=limits,
        boot_retries=settings.boot_retries,
        warm=settings.warm if warm_lifetime_sec else 0,
        warm_lifetime_sec=warm_lifetime_sec,
    )
