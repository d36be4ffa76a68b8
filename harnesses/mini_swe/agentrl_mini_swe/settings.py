"""What can be set about the mini-swe harness; budgets of the rollout are not here, they come with the job."""

from __future__ import annotations

from pydantic import Field

from agentrl.api import PluginSettings


class MiniSweSettings(PluginSettings):
    """Settings of :class:`~agentrl_mini_swe.harness.MiniSwe`."""

    demonstration: bool = Field(
        True,
        validation_alias="SWE_MINI_DEMONSTRATION",
        description="Show worked examples as real turns before the task; a small model learns the reply format from them.",
    )
    command_timeout_sec: float = Field(
        60.0,
        gt=0,
        validation_alias="SWE_MINI_COMMAND_TIMEOUT_SEC",
        description="Seconds that one command may run before it is killed; the model sees the output so far.",
    )
    output_chars: int = Field(
        10_000,
        ge=100,
        validation_alias="SWE_MINI_OUTPUT_CHARS",
        description="Characters of a command's output that the model sees; the middle of a longer output is left out.",
    )
