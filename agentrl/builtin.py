"""What core ships, offered through the same hooks as everybody else's. Strings only: nothing is imported from here."""

from __future__ import annotations

from agentrl.hookspecs import Register, hookimpl


@hookimpl
def agentrl_register_dialects(register: Register) -> None:
    """The wire APIs that agents talk."""
    register("openai-chat", "agentrl.gateway.dialects.openai_chat:OpenAIChat", summary="OpenAI Chat Completions")
    register("anthropic", "agentrl.gateway.dialects.anthropic:AnthropicMessages", summary="Anthropic Messages")
    register(
        "openai-responses", "agentrl.gateway.dialects.openai_responses:OpenAIResponses", summary="OpenAI Responses"
    )
