"""What can be set about the terminus-2 harness; budgets of the rollout are not here, they come with the job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentrl.api import PluginSettings


class Terminus2Settings(PluginSettings):
    """Settings of :class:`~agentrl_terminus_2.harness.Terminus2`."""

    parser: Literal["json", "xml"] = Field(
        "json",
        validation_alias="SWE_TERMINUS_PARSER",
        description="Format of the replies that terminus-2 asks for.",
    )
    summarize: bool = Field(
        False,
        validation_alias="SWE_TERMINUS_SUMMARIZE",
        description="When the context is full, let terminus-2 go on from a summary (a new chain) instead of ending.",
    )
