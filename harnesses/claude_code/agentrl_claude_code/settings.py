"""What can be set about the claude-code harness; budgets of the rollout are not here, they come with the job."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from agentrl.api import PluginSettings

Platform = Literal["linux-x64", "linux-arm64", "linux-x64-musl", "linux-arm64-musl"]
_HERE: Platform = "linux-arm64" if platform.machine() in ("aarch64", "arm64") else "linux-x64"


class ClaudeCodeSettings(PluginSettings):
    """Settings of :class:`~agentrl_claude_code.harness.ClaudeCode`."""

    version: str = Field(
        "2.1.332",
        pattern=r"^[0-9]+(\.[0-9]+)+$",
        validation_alias="SWE_CLAUDE_VERSION",
        description="Version of Claude Code. Requests differ between versions, so it is pinned.",
    )
    platform: Platform = Field(
        _HERE,
        validation_alias="SWE_CLAUDE_PLATFORM",
        description="Which build of Claude Code the sandboxes run; the musl ones are for images such as Alpine's.",
    )
    tools: str = Field(
        "Bash,Edit,Read,Write,Glob,Grep",
        pattern=r"^[A-Za-z]+( *, *[A-Za-z]+)*$",
        validation_alias="SWE_CLAUDE_TOOLS",
        description="Tools that Claude Code offers the model, separated by commas. Agent adds sub-agents.",
    )
    system_prompt: str = Field(
        "",
        validation_alias="SWE_CLAUDE_SYSTEM_PROMPT",
        description="System prompt in place of Claude Code's own; empty: its own.",
    )
    simple: bool = Field(
        False,
        validation_alias="SWE_CLAUDE_SIMPLE",
        description="Claude Code's simple mode, for small models: Bash, Edit and Read whatever SWE_CLAUDE_TOOLS says, "
        "and a quarter of the prompt.",
    )
    customizations: bool = Field(
        False,
        validation_alias="SWE_CLAUDE_CUSTOMIZATIONS",
        description="Obey what a repository brings for Claude Code: CLAUDE.md, settings, hooks, skills.",
    )
    compact_percent: int = Field(
        0,
        ge=0,
        le=95,
        validation_alias="SWE_CLAUDE_COMPACT_PERCENT",
        description="Share of SWE_CONTEXT_TOKENS at which Claude Code goes on from a summary (a new chain); 0: never.",
    )
    retries: int = Field(
        5,
        ge=0,
        validation_alias="SWE_CLAUDE_RETRIES",
        description="How often Claude Code asks again when the engine fails or is overloaded, each time waiting longer.",
    )
    cache_dir: Annotated[Path, AfterValidator(Path.expanduser)] = Field(
        Path.home() / ".cache" / "agentrl",
        validation_alias="AGENTRL_CACHE_DIR",
        description="Folder for things that are made once and kept.",
    )
