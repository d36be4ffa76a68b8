"""Opening and closing machines for one run: how many at once, what is retried, and that none is forgotten."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from agentrl.errors import AgentrlError, SandboxError, SandboxThrottled, SandboxTransient
from agentrl.lease.ledger import Ledger
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.types import SandboxSpec

logger = logging.getLogger(__name__)

RUN_LABEL = "agentrl-run"
ROLLOUT_LABEL = "agentrl-rollout"
CLOSE_ATTEMPTS = 5
BACKOFF_SEC = 1.0
BACKOFF_CAP_SEC = 60.0


class Lease:
    """The one owner of retries for machines. ``boot_retries``: further attempts after the first."""

    def __init__(
        self, backend: SandboxBackend, *, run_id: str, ledger: Path, boot_concurrency: int = 8, boot_retries: int = 3
    ) -> None:
        self.backend, self._run_id, self._boot_retries = backend, run_id, boot_retries
        self._ledger = Ledger(ledger)
        self._booting = asyncio.Semaphore(boot_concurrency)
        self._open: dict[str, Sandbox] = {}
        self._late: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, *, rollout_id: str, lifetime_sec: float) -> AsyncIterator[Sandbox]:
        """One machine for the block, closed when it ends however it ends. ``spec.layers`` are baked first.

        Raises: what baking or the last attempt to create raised. An error of closing is logged, never raised: it must not hide the
        block's own, the ledger keeps the machine as open, and its lifetime ends it.
        """
        sandbox = await self._create(await self._baked(spec), rollout_id, lifetime_sec)
        try:
            yield sandbox
        finally:
            await _finish(asyncio.create_task(self._close(sandbox)))

    async def aclose(self) -> None:
        """Close what is open, also creations that were cancelled while under way."""
        while self._late:
            await asyncio.wait(self._late)
        await asyncio.gather(*(self._close(sandbox) for sandbox in list(self._open.values())))

    async def _baked(self, spec: SandboxSpec) -> SandboxSpec:
        if not spec.layers:
            return spec
        image = await self.backend.prepare(spec.image, spec.resources, spec.layers)
        return replace(spec, image=image, layers=())

    async def _create(self, spec: SandboxSpec, rollout_id: str, lifetime_sec: float) -> Sandbox:
        labels = {RUN_LABEL: self._run_id, ROLLOUT_LABEL: rollout_id}
        attempt = 0
        while True:
            try:
                return await self._create_once(spec, labels, lifetime_sec)
            except SandboxTransient as error:
                if attempt >= self._boot_retries:
                    raise
                logger.warning("sandbox of %s did not start, trying again: %s", rollout_id, error)
                await asyncio.sleep(retry_delay(error, attempt))
            attempt += 1

    async def _create_once(self, spec: SandboxSpec, labels: dict[str, str], lifetime_sec: float) -> Sandbox:
        """Shielded: when we are cancelled, the creation goes on, counts as one under way, and what it makes is closed."""
        await self._booting.acquire()
        creation = asyncio.ensure_future(self.backend.create(spec, labels=labels, lifetime_sec=lifetime_sec))
        creation.add_done_callback(lambda _: self._booting.release())
        try:
            sandbox = await asyncio.shield(creation)
        except asyncio.CancelledError:
            late = asyncio.create_task(self._close_late(creation, labels[ROLLOUT_LABEL]))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            raise
        self._opened(sandbox, labels[ROLLOUT_LABEL])
        return sandbox

    async def _close_late(self, creation: asyncio.Future[Sandbox], rollout_id: str) -> None:
        try:
            sandbox = await creation
        except (AgentrlError, OSError, asyncio.CancelledError):
            return  # nothing was made
        self._opened(sandbox, rollout_id)
        await self._close(sandbox)

    def _opened(self, sandbox: Sandbox, rollout_id: str) -> None:
        self._open[sandbox.id] = sandbox
        self._ledger.created(sandbox.id, rollout_id=rollout_id)

    async def _close(self, sandbox: Sandbox) -> None:
        for attempt in range(CLOSE_ATTEMPTS):
            try:
                await sandbox.close()
            except (SandboxError, OSError) as error:
                logger.warning("closing %s failed: %s", sandbox.id, error)
                if attempt + 1 < CLOSE_ATTEMPTS:
                    await asyncio.sleep(retry_delay(error, attempt))
            else:
                self._ledger.closed(sandbox.id)
                break
        else:
            logger.error("%s was not closed: its lifetime ends it, or `agentrl gc`", sandbox.id)
        self._open.pop(sandbox.id, None)


async def _finish(task: asyncio.Task[None]) -> None:
    """Await ``task`` to its end even if we are cancelled meanwhile; the cancellation is passed on afterwards."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()


def retry_delay(error: Exception, attempt: int) -> float:
    """Seconds to wait: full jitter under an exponential cap, and never less than the provider asked for."""
    jitter = random.uniform(0.0, min(BACKOFF_CAP_SEC, BACKOFF_SEC * 2**attempt))
    wish = error.retry_after_sec if isinstance(error, SandboxThrottled) else None
    return jitter if wish is None else wish + jitter
