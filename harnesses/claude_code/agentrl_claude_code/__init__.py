"""claude-code: the Claude Code command line, unchanged, inside the sandbox against the gateway's Anthropic API.

The program is Anthropic's own native binary in a pinned version. It is fetched once on this machine, baked once into an
image and never installed for a rollout.
"""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_harnesses(register: Register) -> None:
    """Offer the harness ``claude-code``."""
    register(
        "claude-code",
        "agentrl_claude_code.harness:ClaudeCode",
        settings="agentrl_claude_code.settings:ClaudeCodeSettings",
        summary="Anthropic's Claude Code, the real program, inside the sandbox",
    )
