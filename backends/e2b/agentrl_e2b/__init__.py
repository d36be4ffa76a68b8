"""Sandboxes in the cloud of E2B, or of whoever speaks its API."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_sandboxes(register: Register) -> None:
    """Offer ``e2b``."""
    register(
        "e2b",
        "agentrl_e2b.backend:E2BBackend",
        settings="agentrl_e2b.settings:E2BSettings",
        extra="e2b",
        summary="Cloud machines of E2B",
    )
