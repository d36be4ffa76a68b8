"""Settings of the local engine; cheap to import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from agentrl.api import PluginSettings


class LocalEngineSettings(PluginSettings):
    """What a user may choose about the engine that runs on this machine's CPU."""

    threads: int = Field(
        default=2, ge=1, validation_alias="AGENTRL_LOCAL_THREADS", description="CPU threads of the local engine."
    )
    slots: int = Field(
        default=16,
        ge=1,
        validation_alias="AGENTRL_LOCAL_SLOTS",
        description="Sequences that the local engine keeps in memory: how many it decodes at once, and how many it remembers.",
    )
    start_sec: float = Field(
        default=120.0,
        gt=0,
        validation_alias="AGENTRL_LOCAL_START_SEC",
        description="Seconds that the local engine may take to load its model.",
    )
    cache_dir: Annotated[Path, AfterValidator(Path.expanduser)] = Field(
        default=Path.home() / ".cache" / "agentrl",
        validation_alias="AGENTRL_CACHE_DIR",
        description="Folder for things that are made once and kept, such as the converted demo model.",
    )
