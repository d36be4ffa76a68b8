"""One file over a line: small ones in one call, large ones through the wire's own upload and download."""

from __future__ import annotations

import base64
import binascii
import secrets
import time
from functools import cache

from agentrl.errors import FileDenied, FileError, FileIsDirectory, FileMissing, SandboxError
from agentrl.tools.rawgit import script
from agentrl.tools.wired_line import FILES_SEC, Line, assigned

SMALL_BYTES = 60_000
_READ_BYTES = 180_000
_REFUSALS: dict[str, tuple[type[FileError], str]] = {
    "missing": (FileMissing, "there is no such file"),
    "directory": (FileIsDirectory, "it is a directory"),
    "denied": (FileDenied, "permission denied, or below something that is not a directory"),
    "special": (FileDenied, "it is not a regular file"),
}


async def read_file(line: Line, path: str, max_bytes: int) -> bytes:
    """See :meth:`agentrl.sandbox.Sandbox.read_file`."""
    _check(path)
    until = time.monotonic() + FILES_SEC
    facts = {"max": str(max_bytes), "small": str(_READ_BYTES)}
    said = await _say(line, "read_file", path, facts, until)
    kind, size, copy = [*(said or [""])[0].split(" ", 2), "", ""][:3]
    _refuse(path, kind)
    if kind == "large":
        raise FileDenied(f"{path}: {size} bytes are more than {max_bytes}")
    if kind == "copy":
        data = await _download(line, path, copy, until)
    elif kind == "data":
        data = _decoded(path, said[1:])
    else:
        raise SandboxError(f"{path} could not be copied: is the disk of {line.sandbox_id} full?")
    if len(data) < int(size):
        raise SandboxError(f"{path}: {len(data)} bytes arrived instead of {size}")
    if len(data) > max_bytes:
        raise FileDenied(f"{path}: it grew beyond {max_bytes} bytes")
    return data


async def write_file(line: Line, path: str, data: bytes, mode: int) -> None:
    """See :meth:`agentrl.sandbox.Sandbox.write_file`."""
    _check(path)
    until = time.monotonic() + FILES_SEC
    facts = {"mode": f"{mode:o}", "size": str(len(data))}
    if len(data) <= SMALL_BYTES:
        env = {"AGENTRL_DATA": base64.b64encode(data).decode()}
        said = await _say(line, "write_small", path, facts, until, env)
    else:
        said = await _say(line, "prepare_large", path, facts, until)
        if said == ["ready"]:
            new = _beside(path)
            await line.ask(lambda: line.wire.put(new, data), until=until)
            said = await _say(line, "write_large", path, {**facts, "new": new}, until)
    _refuse(path, said[0] if said else "")
    if said != ["written"]:
        raise SandboxError(f"{path} could not be written as a whole: is the disk of {line.sandbox_id} full?")


async def _say(
    line: Line, verb: str, path: str, facts: dict[str, str], until: float, env: dict[str, str] | None = None
) -> list[str]:
    def text() -> str:
        words = {"path": path, "new": _beside(path), "copy": secrets.token_hex(12), **facts}
        return "exec 2>/dev/null\n" + "".join(assigned(*word) for word in words.items()) + _library() + verb + "\n"

    return await line.say(text, until=until, env=env, user=line.admin, within_sec=lambda: FILES_SEC)


async def _download(line: Line, path: str, copy: str, until: float) -> bytes:
    try:
        return await line.ask(lambda: line.wire.get(f"{copy}/file"), until=until)
    finally:
        await _say(line, "remove_copy", path, {"copy": copy}, until)


def _beside(path: str) -> str:
    return f"{path.rpartition('/')[0]}/.agentrl-{secrets.token_hex(12)}"


def _check(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise FileDenied(f"{path!r} is not an absolute path")
    if path.endswith("/"):
        raise FileIsDirectory(f"{path!r} names a directory")


def _refuse(path: str, word: str) -> None:
    if word in _REFUSALS:
        kind, why = _REFUSALS[word]
        raise kind(f"{path}: {why}")


def _decoded(path: str, lines: list[str]) -> bytes:
    try:
        return base64.b64decode("".join(lines), validate=True)
    except binascii.Error as error:
        raise SandboxError(f"{path} came mangled") from error


@cache
def _library() -> str:
    return script("wired_files.sh")
