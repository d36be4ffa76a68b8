"""The program: a static binary from npm and the ``rg`` that comes with it, laid out as its package does.

``codex-package.json`` is how the binary finds ``rg``, which it puts on the path of the agent's commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agentrl.api import Layer, fetch_npm
from agentrl_codex.settings import CodexSettings

FOLDER = "/opt/agentrl/codex"
PROGRAM = f"{FOLDER}/bin/codex"
"""Where it is in the sandbox."""
HOMES = f"{FOLDER}/homes"
"""Where each run has a home; whoever runs it may write there."""
_FILES = ("bin/codex", "codex-path/rg", "codex-package.json")
_TARGETS: Mapping[str, str] = {"linux-x64": "x86_64-unknown-linux-musl", "linux-arm64": "aarch64-unknown-linux-musl"}


def layer(settings: CodexSettings) -> Layer:
    """Puts the program into an image, and starts it there once to see that it can."""
    name = f"codex-{settings.version}-{settings.platform}"
    # Even to say its version it makes a home.
    said = f"home=$(mktemp -d); said=$(HOME=$home {PROGRAM} --version); rm -rf $home"
    check = f'{said}; [ "${{said##* }}" = {settings.version} ] || {{ echo "$said"; exit 1; }}'
    fetched = {f"{FOLDER}/{file}": partial(_fetch, settings, file) for file in _FILES}
    return Layer(name, commands=(f"mkdir -p {HOMES} && chmod 1777 {HOMES}", check), fetched=fetched)


def cached(settings: CodexSettings) -> Path:
    """The folder that keeps it on this machine, whether it is there or not."""
    return settings.cache_dir / "codex" / f"{settings.version}-{settings.platform}"


def _fetch(settings: CodexSettings, file: str) -> Path:
    vendor = f"vendor/{_TARGETS[settings.platform]}"
    package = f"@openai/codex@{settings.version}-{settings.platform}"
    return fetch_npm(package, {name: f"{vendor}/{name}" for name in _FILES}, cached(settings)) / file
