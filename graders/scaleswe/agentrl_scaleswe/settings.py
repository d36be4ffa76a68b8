"""Settings of the ``scaleswe`` protocol."""

from __future__ import annotations

from pydantic import Field

from agentrl.api import PluginSettings


class ScaleSweSettings(PluginSettings):
    """Limits around a task's start state and the agent's patch."""

    pre_commands_timeout_sec: float = Field(
        600.0,
        gt=0,
        validation_alias="SWE_PRE_COMMANDS_TIMEOUT_SEC",
        description="Seconds that a task's pre_commands may take in each fresh sandbox",
    )
    control_run: bool = Field(
        True,
        validation_alias="SWE_CONTROL_RUN",
        description="Believe a pass only if the tests, made to fail, do fail in a second fresh sandbox (Python tests)",
    )
    patch_max_bytes: int = Field(
        5_000_000,
        gt=0,
        validation_alias="SWE_PATCH_MAX_BYTES",
        description="Largest patch that is graded; a larger one is graded 0 as patch_too_large",
    )
