"""A program that opens leases on the chosen backend, says so, and waits to be ended: what ``agentrl gc`` and signals are tested on.

``python leaseholder.py RUN COUNT``; the settings come from the environment. Its lines: ``open ID`` for each machine, ``all``.
"""

from __future__ import annotations

import asyncio
import sys

from agentrl.cli.stopping import Stopping, run_stoppable
from agentrl.lease import make_lease
from agentrl.lease.ledger import FILE
from agentrl.plugins import load_plugins
from agentrl.settings import resolve
from agentrl.types import SandboxSpec


async def hold(stopping: Stopping) -> None:
    run, count = sys.argv[1], int(sys.argv[2])
    resolved = resolve()
    registry, settings = load_plugins(resolved).registry, resolved.settings
    backend = registry.build(registry.get("sandboxes", settings.sandbox))
    lease = make_lease(backend, settings, run_id=run, ledger=settings.run_dir / run / FILE)
    stopping.hurry = lease.hurry
    everywhere = asyncio.Barrier(count + 1)

    async def one(number: int) -> None:
        async with lease.open(SandboxSpec(), rollout_id=f"i0-g0-r{number}", lifetime_sec=600) as sandbox:
            print("open", sandbox.id, flush=True)
            await everywhere.wait()
            await asyncio.Event().wait()

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))
            await everywhere.wait()
            print("all", flush=True)
    finally:
        await lease.aclose()
        await backend.aclose()


if __name__ == "__main__":
    try:
        run_stoppable(hold, lambda words: print(words, flush=True))
    except KeyboardInterrupt:
        sys.exit(130)
