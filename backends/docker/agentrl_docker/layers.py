"""Layers baked into images: one committed image for each base image and layer, made once and kept by the engine.

``docker image prune --all --filter label=agentrl-layer`` removes those that no container uses.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentrl.api import Layer, SandboxRefused

BAKED = "agentrl-layer"
LABEL = "agentrl-layer"
_LOCK_POLL_SEC = 0.05


def name_of(below: Mapping[str, Any], layer: Layer) -> str:
    """What ``layer`` on the image ``below`` is called: by that image's id, for its name may move on."""
    digest = hashlib.sha256(f"{below['Id']} {layer.digest}".encode()).hexdigest()
    return f"{BAKED}:{digest[:24]}"


def config_below(below: Mapping[str, Any], layer: Layer) -> dict[str, Any]:
    """For the commit: what our way of starting a container replaced, as it was. Environment, user and folder stay by themselves."""
    config = below["Config"] or {}
    kept = {"Entrypoint": config.get("Entrypoint") or [], "Cmd": config.get("Cmd") or [], "Labels": {LABEL: layer.name}}
    return kept | ({"Healthcheck": config["Healthcheck"]} if config.get("Healthcheck") else {})


@asynccontextmanager
async def only_builder(name: str) -> AsyncIterator[None]:
    """One builder of an image at a time among the processes of this user; who dies makes room. Raises: SandboxRefused."""
    folder = Path(tempfile.gettempdir(), f"agentrl-docker-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise SandboxRefused(f"{folder} is not a folder of ours: remove it")
    fd = os.open(folder / f"{name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_SEC)
        yield
    finally:
        os.close(fd)
