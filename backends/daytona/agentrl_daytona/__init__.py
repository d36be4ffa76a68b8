"""Sandboxes in the cloud of Daytona, or of a Daytona of one's own."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_sandboxes(register: Register) -> None:
    """Offer ``daytona``."""
    register(
        "daytona",
        "agentrl_daytona.backend:DaytonaBackend",
        settings="agentrl_daytona.settings:DaytonaSettings",
        extra="daytona",
        summary="Cloud machines of Daytona",
    )
