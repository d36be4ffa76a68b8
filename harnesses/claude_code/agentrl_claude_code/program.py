"""The program: a single native file from npm, fetched once on this machine and baked into images as a layer.

Node is not needed in the sandbox, and npm only here, to fetch and check the package.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from agentrl.api import Layer, fetch_npm
from agentrl_claude_code.settings import ClaudeCodeSettings

PROGRAM = "/opt/agentrl/claude-code/claude"
"""Where it is in the sandbox."""
_PACKAGE = "@anthropic-ai/claude-code"


def layer(settings: ClaudeCodeSettings) -> Layer:
    """Puts the program into an image, and starts it there once to see that it can."""
    name = f"claude-code-{settings.version}-{settings.platform}"
    check = f'said=$({PROGRAM} --version) && [ "${{said%% *}}" = {settings.version} ] || {{ echo "$said"; exit 1; }}'
    return Layer(name, commands=(check,), fetched={PROGRAM: partial(fetch, settings)})


def cached(settings: ClaudeCodeSettings) -> Path:
    """Where the program is kept on this machine, whether it is there or not."""
    return settings.cache_dir / "claude-code" / f"{settings.version}-{settings.platform}" / "claude"


def fetch(settings: ClaudeCodeSettings) -> Path:
    """The program on this machine, fetched if need be. Blocking. Raises: HarnessError."""
    package = f"{_PACKAGE}-{settings.platform}@{settings.version}"
    return fetch_npm(package, {"claude": "claude"}, cached(settings).parent) / "claude"
