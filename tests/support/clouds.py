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
BOUND_SEC = 120.0
ROOMY_SEC = 30.0
IMPATIENT = {
    "agentrl.lease.retries.BACKOFF_SEC": 0.1,
    "agentrl.lease.doubts.LOOK_SEC": 0.3,
    "agentrl.lease.doubts.SURE_SEC": 5.0,
    "agentrl.lease.machines.FIRST_RETRY_SEC": 0.1,
    "agentrl.lease.machines.CLOSE_SEC": 20.0,
    "agentrl.tools.wired_line._DELAYS_SEC": (0.05, 0.3),
    "agentrl.tools.wired_file.FILES_SEC": 30.0,
    "agentrl.tools.wired_line.LATE_SEC": 10.0,
    "agentrl.tools.wired_command.LATE_SEC": 10.0,
    "agentrl.tools.wired_command.POLL_SEC": 1.0,
    "agentrl.tools.wired_command._STOP_SEC": 10.0,
    "agentrl.tools.wired_command._CANCEL_SEC": 10.0,
    "agentrl_e2b.wire.LOOK_SEC": 10.0,
    "agentrl_e2b.wire.GRACE_SEC": 0.5,
    "agentrl_e2b.backend.BOOT_PAUSE_SEC": 0.05,
    "agentrl_e2b.templates._POLL_SEC": 0.1,
    "agentrl_daytona.errors.QUOTA_WAIT_SEC": 0.2,
    "agentrl_daytona.sandbox.DELETE_SEC": 10.0,
    "agentrl_daytona.machines.CLEANUP_SEC": 5.0,
    "agentrl_daytona.machines.SLACK_SEC": 1.0,
    "agentrl_daytona.snapshots.POLL_SEC": 0.1,
}
"""Where patience is, and how much of it a provider next door deserves."""


class Patience:
    """The settings of a backend, and its patience with a script, of which only a ``share`` is left while a fault is waiting: what
    else is slow is a busy host."""

    def __init__(self, settings: Any, faults: Faults, share: float) -> None:
        self._settings, self._faults, self._share = settings, faults, share

    def _left(self, seconds: float) -> float:
        return seconds if self._faults.spent else self._share * seconds

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._settings, name)
        return self._left(value) if name in ("request_sec", "create_sec", "boot_timeout_sec") else value

    def __radd__(self, seconds: float) -> float:
        return seconds + self._left(ROOMY_SEC)


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
async def cloud(
    name: str, folder: Path, monkeypatch: Any, *, patience_sec: float = ROOMY_SEC, build_sec: float = 90.0
) -> AsyncIterator[Cloud]:
    """The cloud called ``name`` for the block. What the lease did not close is left for the test to find.

    ``patience_sec``: what a request may take while a fault is waiting to happen; ``build_sec``: what building an image may.
    """
    for where, value in IMPATIENT.items():
        if where.split(".")[0] in ("agentrl", f"agentrl_{name}"):
            monkeypatch.setattr(where, value, raising=False)  # what went elsewhere costs time only
    monkeypatch.setattr("agentrl_daytona.snapshots.BUILD_SEC", build_sec)
    opener = _e2b if name == "e2b" else _daytona
    async with opener(patience_sec / ROOMY_SEC, build_sec) as (server, settings, environment):
        monkeypatch.setattr("agentrl.tools.wired_line._ANSWER_SEC", settings)
        backend = _backend(name, settings)
        lease = Lease(backend, run_id="run", ledger=folder / "ledger.jsonl", boot_retries=3)
        made = Cloud(name, server, backend, lease, environment)
        try:
            yield made
        finally:
            await made.close()
            await backend.aclose()


@asynccontextmanager
async def _e2b(share: float, build_sec: float) -> AsyncIterator[tuple[Any, Any, dict[str, str]]]:
    from agentrl.testing.loopback_e2b import LoopbackE2B
    from agentrl_e2b.settings import E2BSettings

    async with LoopbackE2B() as server:
        settings = E2BSettings(
            api_url=server.url,
            sandbox_url=server.url,
            api_key=server.api_key,
            create_sec=2 * ROOMY_SEC,
            request_sec=ROOMY_SEC,
            build_sec=build_sec,
        )
        yield server, Patience(settings, server.faults, share), server.environment()


@asynccontextmanager
async def _daytona(share: float, build_sec: float) -> AsyncIterator[tuple[Any, Any, dict[str, str]]]:
    from agentrl.testing.loopback_daytona import LoopbackDaytona
    from agentrl_daytona.settings import DaytonaSettings

    async with LoopbackDaytona() as server:
        settings = DaytonaSettings(
            api_url=server.url, api_key=server.api_key, boot_timeout_sec=2 * ROOMY_SEC, request_sec=ROOMY_SEC
        )
        environment = {"DAYTONA_API_URL": server.url, "DAYTONA_API_KEY": server.api_key}
        yield server, Patience(settings, server.faults, share), environment


def _backend(name: str, settings: Any) -> SandboxBackend:
    if name == "e2b":
        from agentrl_e2b.backend import E2BBackend

        return E2BBackend(settings)
    from agentrl_daytona.backend import DaytonaBackend

    return DaytonaBackend(settings)


async def ended(work: Any) -> Any:
    """The answer of ``work``, or the SandboxError that it raised: in bounded time, and nothing else."""
    async with asyncio.timeout(BOUND_SEC):
        try:
            return await work
        except SandboxError as error:
            return error
