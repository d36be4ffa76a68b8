"""What a user may choose; cheap to import."""

from __future__ import annotations

from pydantic import Field

from agentrl.api import PluginSettings


class LineCountSettings(PluginSettings):
    """Limits of the protocol."""

    max_bytes: int = Field(
        1 << 20,
        ge=1,
        validation_alias="SWE_LINECOUNT_MAX_BYTES",
        description="Largest file that the protocol linecount takes from an agent",
    )
