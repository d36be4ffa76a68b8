"""Deleting what a dead run left behind."""

from __future__ import annotations

import time

from agentrl.errors import SandboxError
from agentrl.lease.lease import RUN_LABEL
from agentrl.sandbox import SandboxBackend
from agentrl.types import SandboxInfo


async def collect_garbage(
    backend: SandboxBackend, *, run_id: str | None = None, older_sec: float | None = None, dry_run: bool = False
) -> list[SandboxInfo]:
    """Delete the machines of ``run_id``, or of any run if None, that are at least ``older_sec`` old; what was found.

    Only machines that a lease labelled are touched. One of the two conditions must be given. Raises: ValueError,
    SandboxError (after trying all of them).
    """
    if run_id is None and older_sec is None:
        raise ValueError("name a run or an age: without either, machines of running jobs would be deleted")
    found = await backend.list({RUN_LABEL: run_id} if run_id is not None else {})
    newest = time.time() - (older_sec or 0.0)
    garbage = [info for info in found if RUN_LABEL in info.labels and info.created_at <= newest]
    failures = []
    for info in () if dry_run else garbage:
        try:
            await backend.delete(info.id)
        except SandboxError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return garbage
