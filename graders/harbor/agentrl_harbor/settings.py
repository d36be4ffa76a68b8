"""Settings of the ``harbor`` protocol."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentrl.api import PluginSettings


class HarborSettings(PluginSettings):
    """Where task directories lie, how their machines are made, and limits around the agent's work."""

    tasks_dir: str = Field(
        "",
        validation_alias="SWE_HARBOR_TASKS_DIR",
        description="Folder that relative paths of rows start from; empty: the current one",
    )
    build: bool = Field(
        False,
        validation_alias="SWE_HARBOR_BUILD",
        description="Build from a task's Dockerfile even where the task names a ready-made image",
    )
    prune: bool = Field(
        False,
        validation_alias="SWE_HARBOR_PRUNE",
        description="Remove from a task's repository what is not in the history of its current commit, before the agent starts",
    )
    fetches: Literal["refuse", "try"] = Field(
        "refuse",
        validation_alias="SWE_GRADING_FETCHES",
        description="Tasks whose grading fetches from the network, which sandboxes do not have: `refuse` them, or `try` all the same",
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
    files_max_bytes: int = Field(
        64_000_000,
        gt=0,
        validation_alias="SWE_HARBOR_FILES_MAX_BYTES",
        description="Largest archive of a workdir that is no clean git repository, and of each artifact",
    )
