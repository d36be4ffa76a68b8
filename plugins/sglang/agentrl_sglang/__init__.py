"""A real SGLang server, in an environment of its own, started and supervised."""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_engines(register: Register) -> None:
    """Offer ``sglang``."""
    register(
        "sglang",
        "agentrl_sglang.launcher:SGLangLauncher",
        settings="agentrl_sglang.settings:SGLangSettings",
        summary="A real SGLang server on GPUs, or on this machine's CPU; installed on first use",
    )
