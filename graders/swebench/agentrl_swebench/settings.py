"""Settings of the ``swebench`` protocol."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentrl.api import PluginSettings


class SweBenchSettings(PluginSettings):
    """Where images come from, and limits around the agent's patch."""

    image: str = Field(
        "",
        validation_alias="SWE_SWEBENCH_IMAGE",
        description="Image of every task instead of the row's or the official one; `{instance_id}` stands for the task's part of the name",
    )
    fetches: Literal["refuse", "try"] = Field(
        "refuse",
        validation_alias="SWE_GRADING_FETCHES",
        description="Tasks whose grading fetches from the network, which sandboxes do not have: `refuse` them, or `try` all the same",
    )
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
