"""What can be set about the codex harness; budgets of the rollout are not here, they come with the job."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from agentrl.api import PluginSettings

Platform = Literal["linux-x64", "linux-arm64"]
_HERE: Platform = "linux-arm64" if platform.machine() in ("aarch64", "arm64") else "linux-x64"


class CodexSettings(PluginSettings):
    """Settings of :class:`~agentrl_codex.harness.Codex`."""

    version: str = Field(
        "0.171.0",
        pattern=r"^[0-9]+(\.[0-9]+)+$",
        validation_alias="SWE_CODEX_VERSION",
        description="Version of Codex. Requests differ between versions, so it is pinned.",
    )
    platform: Platform = Field(
        _HERE,
        validation_alias="SWE_CODEX_PLATFORM",
        description="Which build of Codex the sandboxes run; it is static and needs no C library.",
    )
    instructions: str = Field(
        "",
        validation_alias="SWE_CODEX_INSTRUCTIONS",
        description="Instructions in place of Codex's own, which are long; empty: its own.",
    )
    customizations: bool = Field(
        False,
        validation_alias="SWE_CODEX_CUSTOMIZATIONS",
        description="Obey the AGENTS.md files of a repository.",
    )
    retries: int = Field(
        4,
        ge=0,
        validation_alias="SWE_CODEX_RETRIES",
        description="How often Codex sends a request again before it counts as failed; a failed one it tries twice more.",
    )
    cache_dir: Annotated[Path, AfterValidator(Path.expanduser)] = Field(
        Path.home() / ".cache" / "agentrl",
        validation_alias="AGENTRL_CACHE_DIR",
        description="Folder for things that are made once and kept.",
    )
