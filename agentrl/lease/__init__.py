"""Leases on sandboxes: bounded and retried starts, closes that happen, a ledger of every machine, and garbage collection."""

from __future__ import annotations

from agentrl.lease.doubts import KEY_LABEL, RUN_LABEL
from agentrl.lease.garbage import Garbage, collect_garbage
from agentrl.lease.lease import Lease, make_lease
from agentrl.lease.ledger import Ledger
from agentrl.lease.limits import Limits
from agentrl.lease.starter import ROLLOUT_LABEL

__all__ = [
    "KEY_LABEL",
    "ROLLOUT_LABEL",
    "RUN_LABEL",
    "Garbage",
    "Lease",
    "Ledger",
    "Limits",
    "collect_garbage",
    "make_lease",
]
