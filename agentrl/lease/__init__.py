"""Leases on sandboxes: bounded and retried starts, closes that happen, a ledger of every machine, and garbage collection."""

from __future__ import annotations

from agentrl.lease.garbage import collect_garbage
from agentrl.lease.lease import ROLLOUT_LABEL, RUN_LABEL, Lease
from agentrl.lease.ledger import Ledger

__all__ = ["ROLLOUT_LABEL", "RUN_LABEL", "Lease", "Ledger", "collect_garbage"]
