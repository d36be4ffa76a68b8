"""Leases on a provider in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from provider import Provider

from agentrl.lease import Lease, Ledger
from agentrl.lease.retries import retry_delay


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waiting between attempts, taken note of instead of done; and nothing lags behind."""
    noted: list[float] = []

    def note(error, attempt, **options):
        noted.append(retry_delay(error, attempt, **options))
        return 0.0

    for module in ("starter", "machines", "doubts", "retries", "garbage"):
        monkeypatch.setattr(f"agentrl.lease.{module}.retry_delay", note)
    for name in ("LOOK_SEC", "SURE_SEC"):
        monkeypatch.setattr(f"agentrl.lease.doubts.{name}", 0.01)
    return noted


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Of the lease."""
    return Ledger(tmp_path / "deep" / "ledger.jsonl", "r1")


@pytest.fixture
def lease_on(ledger: Ledger) -> Callable[..., Lease]:
    """``lease_on(provider, **options)``."""

    def make(provider: Provider, **options) -> Lease:
        return Lease(provider, run_id="r1", ledger=ledger.path, **options)

    return make
