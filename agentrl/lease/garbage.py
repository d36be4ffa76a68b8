"""Deleting what a dead run left behind.

Two sources, because each may miss some: the provider's list by label, and the ledgers of runs. Not here: which runs are
dead (their ledgers tell, see :meth:`agentrl.lease.ledger.Ledger.sole`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agentrl.errors import SandboxError, SandboxGone, SandboxTransient
from agentrl.lease.doubts import KEY_LABEL, RUN_LABEL
from agentrl.lease.ledger import Ledger
from agentrl.lease.retries import retry_delay
from agentrl.lease.starter import ROLLOUT_LABEL
from agentrl.sandbox import SandboxBackend
from agentrl.types import SandboxInfo

AT_ONCE = 8
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Garbage:
    """A machine that nobody needs any more. ``listed``: whether the provider knows it, too, and not only a ledger; ``error``:
    why it could not be deleted."""

    id: str
    run_id: str
    rollout_id: str
    age_sec: float
    listed: bool = True
    error: str = ""


async def collect_garbage(
    backend: SandboxBackend,
    *,
    runs: Collection[str] | None = None,
    except_runs: Collection[str] = (),
    older_sec: float = 0.0,
    ledgers: Sequence[Ledger] = (),
    dry_run: bool = False,
) -> list[Garbage]:
    """Delete the machines of ``runs`` (None: of any run but ``except_runs``) that are at least ``older_sec`` old; what was found.

    Only machines that a lease labelled are touched, and those that ``ledgers`` have as open; what is gone is written into these.
    A failure to delete is in the result. Raises: SandboxError when the provider does not tell what there is.
    """
    wanted = _Wanted(runs, except_runs, older_sec)
    listed = await backend.list({RUN_LABEL: next(iter(runs))} if runs is not None and len(runs) == 1 else {})
    found = {garbage.id: garbage for garbage in (*wanted.of_list(listed), *wanted.of_ledgers(ledgers, listed))}
    if dry_run:
        return list(found.values())
    room = asyncio.Semaphore(AT_ONCE)
    ended = await asyncio.gather(*(_delete(backend, garbage, room) for garbage in found.values()))
    keys = {info.labels[KEY_LABEL]: info.id for info in listed if KEY_LABEL in info.labels}
    gone = {garbage.id for garbage in ended if not garbage.error}
    for ledger in ledgers:
        _settle(ledger, gone, keys)
    return ended


@dataclass(frozen=True, slots=True)
class _Wanted:
    runs: Collection[str] | None
    except_runs: Collection[str]
    older_sec: float

    def of_list(self, listed: Sequence[SandboxInfo]) -> Iterator[Garbage]:
        now = time.time()
        for info in listed:
            labels = info.labels
            if RUN_LABEL in labels:
                rollout_id = labels.get(ROLLOUT_LABEL, "")
                yield from self._old(Garbage(info.id, labels[RUN_LABEL], rollout_id, now - info.created_at))

    def of_ledgers(self, ledgers: Sequence[Ledger], listed: Sequence[SandboxInfo]) -> Iterator[Garbage]:
        """What the provider does not list; asking for its deletion all the same costs little."""
        known, now = {info.id for info in listed}, time.time()
        for ledger in ledgers:
            for sandbox_id, born in ledger.read().open.items():
                if sandbox_id not in known:
                    run_id = born.run_id or ledger.run_id
                    yield from self._old(Garbage(sandbox_id, run_id, born.rollout_id, now - born.at, listed=False))

    def _old(self, garbage: Garbage) -> Iterator[Garbage]:
        meant = garbage.run_id in self.runs if self.runs is not None else garbage.run_id not in self.except_runs
        if meant and garbage.age_sec >= self.older_sec:
            yield garbage


async def _delete(backend: SandboxBackend, garbage: Garbage, room: asyncio.Semaphore) -> Garbage:
    async with room:
        for attempt in range(ATTEMPTS):
            try:
                await backend.delete(garbage.id)
            except SandboxGone:
                break
            except SandboxTransient as error:
                garbage = replace(garbage, error=str(error))
                if attempt + 1 < ATTEMPTS:
                    await asyncio.sleep(retry_delay(error, attempt, first_sec=1.0))
            except (SandboxError, OSError) as error:
                return replace(garbage, error=str(error) or type(error).__name__)
            else:
                break
        else:
            return garbage
    return replace(garbage, error="")


def _settle(ledger: Ledger, gone: Collection[str], keys: Mapping[str, str]) -> None:
    """Write down what is gone, and which intentions never became a machine or only one that is gone."""
    entries = ledger.read()
    for sandbox_id in entries.open:
        if sandbox_id in gone:
            ledger.closed(sandbox_id)
    for key in entries.intended:
        if key not in keys or keys[key] in gone:
            ledger.failed(key)
