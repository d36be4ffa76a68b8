"""Baked layers: the writes of a layer's commands, kept once per digest and stacked under later sandboxes."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agentrl.api import ImageUnavailable, Layer

PREFIX = "local:"
HOST = ("", "host")
_LOCK_POLL_SEC = 0.05


class Images:
    """A folder of baked layers, shared by all processes of one user. An image is named after its topmost layer."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def name(self, image: str | None, layer: Layer) -> str:
        """What ``layer`` on top of ``image`` is called."""
        below = "" if image in HOST else image or ""
        return PREFIX + hashlib.sha256(f"{below}\n{layer.digest}".encode()).hexdigest()[:24]

    def exists(self, name: str) -> bool:
        """Whether it is baked."""
        return (self._folder(name) / "image.json").exists()

    def layers(self, image: str | None) -> tuple[Path, ...]:
        """The layer folders of ``image``, bottom first. Raises: ImageUnavailable."""
        found: list[Path] = []
        while image not in HOST and image is not None:
            try:
                below = json.loads((self._folder(image) / "image.json").read_text())["below"]
            except FileNotFoundError:
                raise ImageUnavailable(f"{image} is not baked here: call prepare() first") from None
            found.append(self._folder(image))
            image = below
        return tuple(reversed(found))

    def keep(self, state: Path, name: str, image: str | None) -> None:
        """Make the writes of a dead sandbox, in ``state``, the image ``name``. Atomic; blocking."""
        (state / "image.json").write_text(json.dumps({"below": image or ""}))
        folder = self._folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        (state / "folders").rename(folder / "folders")
        (state / "image.json").rename(folder / "image.json")

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """One builder of ``name`` at a time, among all processes."""
        self._store.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._folder(name).with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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

    def _folder(self, name: str) -> Path:
        return self._store / name.removeprefix(PREFIX)
