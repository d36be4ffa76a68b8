"""Both clouds on loopback, with our backends on their real SDKs and a lease, and with little patience so that tests are quick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.errors import SandboxError
from agentrl.lease import Lease
from agentrl.sandbox import SandboxBackend
from agentrl.testing.faults import Faults

NAMES = ("e2b", "daytona")
BOUND_SEC = 45.0
IMPATIENT = {
    "agentrl.lease.retries.BACKOFF_SEC": 0.1,
    "agentrl.lease.doubts.LOOK_SEC": 0.3,
    "agentrl.lease.doubts.SURE_SEC": 1.0,
    "agentrl.lease.machines.FIRST_RETRY_SEC": 0.1,
    "agentrl.lease.machines.CLOSE_SEC": 8.0,
    "agentrl.tools.wired_line._ANSWER_SEC": 1.0,
    "agentrl.tools.wired_line._DELAYS_SEC": (0.05, 0.3),
    "agentrl.tools.wired_file.FILES_SEC": 10.0,
    "agentrl.tools.wired_line.LATE_SEC": 3.0,
    "agentrl.tools.wired_command.LATE_SEC": 3.0,
    "agentrl.tools.wired_command.POLL_SEC": 1.0,
    "agentrl.tools.wired_command._STOP_SEC": 2.0,
    "agentrl.tools.wired_command._CANCEL_SEC": 3.0,
    "agentrl_e2b.wire.LOOK_SEC": 1.0,
    "agentrl_e2b.wire.GRACE_SEC": 0.5,
    "agentrl_e2b.backend.SEARCH_AFTER_SEC": (0.0, 0.2, 0.5),
    "agentrl_e2b.backend.BOOT_PAUSE_SEC": 0.05,
    "agentrl_e2b.templates._POLL_SEC": 0.1,
    "agentrl_daytona.backend.LIST_SEC": 3.0,
    "agentrl_daytona.errors.QUOTA_WAIT_SEC": 0.2,
    "agentrl_daytona.sandbox.DELETE_SEC": 3.0,
    "agentrl_daytona.machines.CLEANUP_SEC": 5.0,
    "agentrl_daytona.machines.SLACK_SEC": 1.0,
    "agentrl_daytona.snapshots.BUILD_SEC": 3.0,
    "agentrl_daytona.snapshots.POLL_SEC": 0.1,
}
"""Where patience is, and how much of it a provider next door deserves."""


@dataclass(slots=True)
class Cloud:
    """``server`` is the provider, ``lease`` ours."""

    name: str
    server: Any
    backend: SandboxBackend
    lease: Lease
    environment: dict[str, str]
    closed: bool = False

    async def close(self) -> None:
        """End the lease, once."""
        if not self.closed:
            self.closed = True
            await self.lease.aclose()

    @property
    def faults(self) -> Faults:
        return self.server.faults

    async def inside(self, sandbox_id: str, path: str) -> bytes | None:
        """What the provider's own machine has at ``path``, without asking our code."""
        with suppress(FileNotFoundError):
            return await self.server.machines[sandbox_id].guest.read(path)
        return None

    async def appears(self, sandbox_id: str, path: str) -> None:
        """Wait for a file inside, past our own code."""
        async with asyncio.timeout(BOUND_SEC):
            while await self.inside(sandbox_id, path) is None:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def cloud(name: str, folder: Path, monkeypatch: Any, *, patience_sec: float = 30.0) -> AsyncIterator[Cloud]:
    """The cloud called ``name`` for the block. What the lease did not close is left for the test to find.

    ``patience_sec``: what a request may take. Little only where it is to run out: a busy host is slow too.
    """
    for where, value in IMPATIENT.items():
        if where.split(".")[0] in ("agentrl", f"agentrl_{name}"):
            monkeypatch.setattr(where, value, raising=False)  # what went elsewhere costs time only
    opener = _e2b if name == "e2b" else _daytona
    async with opener(patience_sec) as (server, backend, environment):
        lease = Lease(backend, run_id="run", ledger=folder / "ledger.jsonl", boot_retries=3)
        made = Cloud(name, server, backend, lease, environment)
        try:
            yield made
        finally:
            await made.close()
            await backend.aclose()


@asynccontextmanager
async def _e2b(patience_sec: float) -> AsyncIterator[tuple[Any, SandboxBackend, dict[str, str]]]:
    from agentrl.testing.loopback_e2b import LoopbackE2B
    from agentrl_e2b.backend import E2BBackend
    from agentrl_e2b.settings import E2BSettings

    async with LoopbackE2B() as server:
        settings = E2BSettings(
            api_url=server.url,
            sandbox_url=server.url,
            api_key=server.api_key,
            create_sec=2 * patience_sec,
            request_sec=patience_sec,
            build_sec=3 * patience_sec,
        )
        yield server, E2BBackend(settings), server.environment()


@asynccontextmanager
async def _daytona(patience_sec: float) -> AsyncIterator[tuple[Any, SandboxBackend, dict[str, str]]]:
    from agentrl.testing.loopback_daytona import LoopbackDaytona
    from agentrl_daytona.backend import DaytonaBackend
    from agentrl_daytona.settings import DaytonaSettings

    async with LoopbackDaytona() as server:
        settings = DaytonaSettings(
            api_url=server.url, api_key=server.api_key, boot_timeout_sec=2 * patience_sec, request_sec=patience_sec
        )
        environment = {"DAYTONA_API_URL": server.url, "DAYTONA_API_KEY": server.api_key}
        yield server, DaytonaBackend(settings), environment


async def ended(work: Any) -> Any:
    """The answer of ``work``, or the SandboxError that it raised: in bounded time, and nothing else."""
    async with asyncio.timeout(BOUND_SEC):
        try:
            return await work
        except SandboxError as error:
            return error
