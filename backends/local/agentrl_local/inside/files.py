"""Reading and writing whole files, without ever waiting for one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

CHUNK = 1 << 20


def read_file(path: str, max_bytes: int) -> bytes:
    """The bytes of a regular file. Raises: OSError."""
    with os.fdopen(_open_regular(path), "rb", buffering=0) as file:
        data = bytearray()
        while len(data) <= max_bytes and (chunk := file.read(CHUNK)):
            data += chunk
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes")
    return bytes(data)


def _open_regular(path: str) -> int:
    """Non-blocking: opening a FIFO would wait for its other end."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    raise PermissionError(errno.EACCES, "not a regular file")


def write_file(path: str, data: bytes, mode: int) -> None:
    """Write beside the target under a random name, then rename: whole or not at all. Raises: OSError."""
    target = Path(path)
    if path.endswith("/") or (target.is_dir() and not target.is_symlink()):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(".agentrl-" + os.urandom(8).hex())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, mode)
        temporary.rename(target)
    except OSError:
        temporary.unlink()
        raise
