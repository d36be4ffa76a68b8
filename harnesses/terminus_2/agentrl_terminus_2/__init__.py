"""terminus-2: an agent that types into a terminal. The loop runs on the host, the terminal in the sandbox.

Written anew, wire-compatible with the agent of that name in Harbor: the same structure of prompts and replies, the same
warnings, clamps and double confirmation.
"""

from __future__ import annotations

from agentrl.api import Register, hookimpl


@hookimpl
def agentrl_register_harnesses(register: Register) -> None:
    """Offer the harness ``terminus-2``."""
    register(
        "terminus-2",
        "agentrl_terminus_2.harness:Terminus2",
        settings="agentrl_terminus_2.settings:Terminus2Settings",
        summary="Keystrokes into a tmux terminal, replies in JSON or XML",
    )
