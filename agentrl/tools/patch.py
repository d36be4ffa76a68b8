"""The agent's work as a patch: captured byte for byte, applied all or nothing.

A patch is what ``git diff --binary`` writes between the base commit's tree and the files as they lie in the work tree,
however they got there: committed, staged, unstaged, untracked, deleted, renamed. Line endings, encodings and modes are
taken as they are; git's configuration and attributes in the repository or the home folder change nothing. Files that
``.gitignore`` names and nobody tracks are left out and listed. Repositories inside the tree are folders of files.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentrl.errors import PatchTooLarge
from agentrl.sandbox import Sandbox
from agentrl.tools.rawgit import fresh_path, names, raw_git

MAX_BYTES = 5_000_000
MAX_IGNORED = 1000
_HEADER = re.compile(rb"^diff --git (.+)$", re.MULTILINE)
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


@dataclass(frozen=True, slots=True)
class Captured:
    """``patch`` is empty only when nothing differs. ``ignored``: paths left out by ``.gitignore``, folders with a slash
    at the end, at most 1000, printable (odd bytes escaped)."""

    patch: bytes
    ignored: tuple[str, ...]


async def read_base(sandbox: Sandbox, workdir: str) -> str:
    """The full id of the commit that ``workdir`` is at. Ask before the agent starts. Raises: PatchError, SandboxError."""
    return (await raw_git(sandbox, "at", fresh_path(), workdir)).decode("ascii").strip()


async def capture_patch(
    sandbox: Sandbox, workdir: str, base: str, *, max_bytes: int = MAX_BYTES, exclude: Sequence[str] = ()
) -> Captured:
    """All that differs from ``base`` in ``workdir``, save the paths in ``exclude`` (relative; a folder means all below it).

    Raises: PatchTooLarge (more than ``max_bytes``), PatchError (no git, the base is gone, files that cannot be read,
    ...), SandboxError. Never an empty patch instead.
    """
    async with _scratch(sandbox) as scratch:
        ignored = await raw_git(sandbox, "capture", scratch, workdir, base, str(max_bytes), *exclude)
        patch = await sandbox.read_file(f"{scratch}/patch", max_bytes=max_bytes + 1)
    if len(patch) > max_bytes:
        raise PatchTooLarge(f"the patch is larger than {max_bytes} bytes")
    return Captured(patch, _printable(ignored))


async def apply_patch(sandbox: Sandbox, workdir: str, base: str, patch: bytes) -> None:
    """Make ``workdir`` equal to ``base`` plus ``patch``, whatever was there (ignored files stay). HEAD does not move.

    Raises: PatchRejected (the tree equals the base then), PatchError, SandboxError.
    """
    async with _scratch(sandbox) as scratch:
        await sandbox.write_file(f"{scratch}/patch", patch)
        await raw_git(sandbox, "apply", scratch, workdir, base)


async def changed_paths(sandbox: Sandbox, workdir: str, base: str) -> tuple[str, ...]:
    """The files that differ from ``base``. Raises: PatchError, SandboxError."""
    return names(await raw_git(sandbox, "changed", fresh_path(), workdir, base))


async def restore_paths(sandbox: Sandbox, workdir: str, base: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Put ``paths`` (files or folders) back as ``base`` has them; what it does not have is removed.

    Returns the files that this changed. Raises: PatchError, SandboxError.
    """
    if not paths:
        return ()
    listing = b"".join(path.encode(errors="surrogateescape") + b"\0" for path in paths)
    async with _scratch(sandbox) as scratch:
        await sandbox.write_file(f"{scratch}/paths", listing)
        return names(await raw_git(sandbox, "restore", scratch, workdir, base))


async def show_file(sandbox: Sandbox, workdir: str, base: str, path: str) -> bytes:
    """A file as ``base`` has it. Raises: PatchError (not there), SandboxError."""
    return await raw_git(sandbox, "show", fresh_path(), workdir, base, path)


def patched_paths(patch: bytes) -> tuple[str, ...]:
    """The files that a patch of :func:`capture_patch` touches, also those that ``.gitignore`` names."""
    found: dict[str, None] = {}
    for line in _HEADER.findall(patch):
        quoted = re.fullmatch(rb'"a/.*" ("b/.*")', line)
        # Without renames both names are the same, so that the second half is the name, whatever spaces are in it.
        name = _unquoted(quoted[1]) if quoted else line[len(line) // 2 + 1 :]
        found[name.removeprefix(b"b/").decode(errors="surrogateescape")] = None
    return tuple(found)


def _unquoted(name: bytes) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        digits = match[1]
        return bytes([int(digits, 8)]) if len(digits) == 3 else _ESCAPES.get(digits, digits)

    return re.sub(rb"\\([0-7]{3}|.)", plain, name[1:-1])


@asynccontextmanager
async def _scratch(sandbox: Sandbox) -> AsyncIterator[str]:
    """A fresh path; what became of it is removed unless the block failed (the sandbox may be gone then)."""
    path = fresh_path()
    yield path
    await sandbox.exec(["rm", "-rf", path], cwd="/", timeout_sec=60, idempotent=True)


def _printable(listing: bytes) -> tuple[str, ...]:
    """The last name of a listing that was cut may be half a name: it is dropped, and so is what lies in a listed folder."""
    kept: list[str] = []
    for path in sorted(listing[: listing.rfind(b"\0") + 1].split(b"\0")[:-1]):
        name = path.decode(errors="backslashreplace")
        if not (kept and kept[-1].endswith("/") and name.startswith(kept[-1])):
            kept.append(name)
    return tuple(kept[:MAX_IGNORED])
