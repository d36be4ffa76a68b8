"""File operations inside a guest: what they read comes on stdin, what they find goes to stdout."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


def perform(operation: str, arguments: list[Any]) -> int:
    """Do it; the exit code is the errno, and stderr says more."""
    try:
        OPERATIONS[operation](*arguments)
    except OSError as error:
        os.write(2, os.fsencode(error.strerror or str(error)))
        return error.errno or errno.EIO
    return 0


def read(path: str) -> None:
    """Copy a regular file to stdout."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "is not a regular file")
    while data := os.read(fd, CHUNK):
        pour(1, data)


def write(path: str, mode: int, owner: int | None) -> None:
    """Copy stdin into a file, making the folders above it; what is there keeps its mode."""
    folders_above(path, owner)
    fresh = not Path(path).exists()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, mode)
    if fresh and owner is not None:
        os.fchown(fd, owner, owner)
    while data := os.read(0, CHUNK):
        pour(fd, data)


def folders_above(path: str, owner: int | None) -> None:
    """Make what is missing above ``path``."""
    for folder in reversed(Path(path).parents):
        if not folder.exists():
            folder.mkdir()
            if owner is not None:
                os.chown(folder, owner, owner)


def pour(fd: int, data: bytes) -> None:
    """Write all of ``data``."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def describe(path: str) -> dict[str, object]:
    """One entry, links not followed."""
    info = os.lstat(path)
    target, beyond = "", info.st_mode
    if stat.S_ISLNK(info.st_mode):
        target = os.readlink(path)  # noqa: PTH115 -- a Path would tidy it
        beyond = os.stat(path).st_mode if os.path.exists(path) else 0  # noqa: PTH110, PTH116
    return {
        "path": path,
        "mode": info.st_mode,
        "size": info.st_size,
        "uid": info.st_uid,
        "gid": info.st_gid,
        "mtime": info.st_mtime,
        "target": target,
        "beyond": beyond,
    }


def show(path: str) -> None:
    """One entry as JSON."""
    pour(1, json.dumps(describe(path)).encode())


def listing(path: str, depth: int) -> None:
    """What is below a folder as a JSON list, ``depth`` levels deep."""
    pour(1, json.dumps(below(path, depth)).encode())


def below(path: str, depth: int) -> list[dict[str, object]]:
    """See :func:`listing`."""
    found = []
    for child in sorted(Path(path).iterdir()):
        entry = describe(str(child))
        found.append(entry)
        if depth > 1 and stat.S_ISDIR(int(str(entry["mode"]))):
            found += below(str(entry["path"]), depth - 1)
    return found


def make(path: str, mode: int, owner: int | None) -> None:
    """A folder with those above it. Raises: FileExistsError."""
    folders_above(path, owner)
    Path(path).mkdir()
    Path(path).chmod(mode)
    if owner is not None:
        os.chown(path, owner, owner)


def remove(path: str) -> None:
    """A file, a link, or a whole folder."""
    if Path(path).is_dir() and not Path(path).is_symlink():
        shutil.rmtree(path)
    else:
        Path(path).unlink()


def move(source: str, target: str) -> None:
    """Rename, making the folders above the target."""
    folders_above(target, None)
    Path(source).rename(target)


OPERATIONS: dict[str, Callable[..., None]] = {
    "read": read,
    "write": write,
    "stat": show,
    "list": listing,
    "make": make,
    "remove": remove,
    "move": move,
    "chmod": os.chmod,
    "chown": os.chown,
}
