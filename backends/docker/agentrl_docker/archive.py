"""Tar archives of one file: how a Docker engine takes and gives files."""

from __future__ import annotations

import io
import tarfile

from agentrl.api import SandboxError


def pack(name: str, data: bytes) -> io.BytesIO:
    """An archive of the file ``name``, which only its owner, root, may change."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(entry, io.BytesIO(data))
    archive.seek(0)
    return archive


def unpack(tar: tarfile.TarFile) -> bytes:
    """The only file of an archive. Raises: SandboxError (it is something else)."""
    with tar:
        members = tar.getmembers()
        file = tar.extractfile(members[0]) if len(members) == 1 and members[0].isreg() else None
        if file is None:
            raise SandboxError(f"not a regular file: {', '.join(member.name for member in members[:3])}")
        return file.read()
