"""A minimal coding agent: a loop on the host, one bash command per reply, run in the sandbox."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_harnesses(register: Register) -> None:
    """Offer the harness ``mini-swe``."""
    register(
        "mini-swe",
        "agentrl_mini_swe.harness:MiniSwe",
        settings="agentrl_mini_swe.settings:MiniSweSettings",
        summary="A loop on the host: one bash command per reply",
    )
