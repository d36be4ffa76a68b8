"""Sandboxes on this machine, by bubblewrap: no daemon, no images, a few dozen milliseconds to boot."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_sandboxes(register: Register) -> None:
    """Offer ``local``."""
    register(
        "local",
        "agentrl_local.backend:LocalBackend",
        settings="agentrl_local.settings:LocalSettings",
        extra="local",
        summary="Bubblewrap sandboxes on this machine",
    )
