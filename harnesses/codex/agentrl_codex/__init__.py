"""codex: the Codex command line, unchanged, inside the sandbox against the gateway's OpenAI Responses API.

The program is OpenAI's own native binary in a pinned version. It is fetched once on this machine, baked once into an image
and never installed for a rollout.
"""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_harnesses(register: Register) -> None:
    """Offer the harness ``codex``."""
    register(
        "codex",
        "agentrl_codex.harness:Codex",
        settings="agentrl_codex.settings:CodexSettings",
        summary="OpenAI's Codex, the real program, inside the sandbox",
    )
