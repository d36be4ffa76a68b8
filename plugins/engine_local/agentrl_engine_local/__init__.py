"""An engine that runs on this machine's CPU and speaks SGLang's native protocol; and a small demo model for it."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_engines(register: Register) -> None:
    """Offer ``local``."""
    register(
        "local",
        "agentrl_engine_local.launcher:LocalEngine",
        settings="agentrl_engine_local.settings:LocalEngineSettings",
        extra="engine-local",
        summary="Small models on this machine's CPU, in plain torch, exact to the last digit",
    )
