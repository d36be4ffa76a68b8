"""Files of the host into a sandbox, however big: in parts, so that no more than a part is ever in memory.

Not here: what a layer is (:class:`agentrl.types.Layer`) and how an image is kept, which is a backend's own business.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from agentrl.errors import SandboxError
from agentrl.sandbox import Sandbox
from agentrl.tools.rawgit import fresh_path
from agentrl.types import Layer

PART_BYTES = 16 << 20
_APPEND_SEC = 60.0


async def write_layer(sandbox: Sandbox, layer: Layer) -> None:
    """Write the files of ``layer``, fetching what is not on the host yet; its commands are left to the caller.

    Raises: what the layer's own functions raise, FileError, SandboxError.
    """
    for path, data in layer.files.items():
        await sandbox.write_file(path, data, mode=0o755)
    for path, fetch in layer.fetched.items():
        await upload_file(sandbox, await asyncio.to_thread(fetch), path, mode=0o755)


async def upload_file(sandbox: Sandbox, source: Path, path: str, *, mode: int = 0o644) -> None:
    """Copy the host's file ``source`` to ``path`` in the sandbox, replacing what was there. Raises: OSError, FileError, SandboxError."""
    part = fresh_path()
    await sandbox.write_file(path, b"", mode=mode)
    with source.open("rb") as file:
        while data := await asyncio.to_thread(file.read, PART_BYTES):
            await sandbox.write_file(part, data)
            await _append(sandbox, part, path)


async def _append(sandbox: Sandbox, part: str, path: str) -> None:
    names = shlex.quote(part), shlex.quote(path)
    result = await sandbox.exec(f"cat {names[0]} >> {names[1]} && rm {names[0]}", cwd="/", timeout_sec=_APPEND_SEC)
    if not result.ok:
        raise SandboxError(f"{path} could not be written: {result.stderr[-500:].decode(errors='replace')}")
