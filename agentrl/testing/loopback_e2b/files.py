"""envd's files: downloads and uploads over HTTP, and the file system service."""

from __future__ import annotations

import errno
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import Message
from pathlib import PurePosixPath
from typing import Any

from aiohttp import BodyPartReader, web

from agentrl.testing.faults import Faults
from agentrl.testing.faulty import abort
from agentrl.testing.guest import Entry
from agentrl.testing.loopback_e2b.errors import ApiError, RpcError
from agentrl.testing.loopback_e2b.machines import Account, Machine

_NAMES = {0: "root", 1000: "user"}


def resolve(path: str, user: Account) -> str:
    """An absolute path: relative ones begin in the user's home."""
    if path == "~" or path.startswith("~/"):
        path = path[1:].lstrip("/")
    return str(PurePosixPath(user.home, path))


async def download(machine: Machine, request: web.Request, user: Account, faults: Faults) -> web.StreamResponse:
    """A file out. Raises: ApiError."""
    path = resolve(request.query.get("path", ""), user)
    try:
        data = await machine.guest.read(path)
    except OSError as error:
        raise _refusal(error, path) from error
    fault = faults.take("read", "cut")
    if fault is None:
        return web.Response(body=data, content_type="application/octet-stream")
    response = web.StreamResponse(headers={"Content-Length": str(len(data))})
    await response.prepare(request)
    await response.write(data[: fault.after_bytes])
    abort(request)
    return response


async def upload(machine: Machine, request: web.Request, user: Account) -> web.Response:
    """Files in: one as the body, or many as parts of a form. Raises: ApiError."""
    named = request.query.get("path")
    written = []
    if request.content_type.startswith("multipart/"):
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise ApiError(400, "a form within a form")
            written.append(await _store(machine, named or _filename(part), bytes(await part.read()), user))
    else:
        written.append(await _store(machine, named or "", await request.read(), user))
    return web.json_response(written)


def _filename(part: BodyPartReader) -> str:
    """With its folders: aiohttp takes them away."""
    header = Message()
    header["Content-Disposition"] = part.headers.get("Content-Disposition", "")
    return header.get_filename("")


async def _store(machine: Machine, name: str, data: bytes, user: Account) -> dict[str, str]:
    path = resolve(name, user)
    try:
        await machine.guest.write(path, data, owner=user.uid)
    except OSError as error:
        raise _refusal(error, path) from error
    return {"name": PurePosixPath(path).name, "type": "file", "path": path}


def _refusal(error: OSError, path: str) -> ApiError:
    if error.errno == errno.ENOENT:
        return ApiError(404, f"path '{path}' does not exist")
    if error.errno == errno.EISDIR:
        return ApiError(400, f"path '{path}' is a directory")
    if error.errno == errno.ENOSPC:
        return ApiError(507, "not enough disk space available")
    return ApiError(400 if error.errno in (errno.ENOTDIR, errno.EINVAL) else 500, f"{path}: {error.strerror}")


async def call(machine: Machine, method: str, body: Mapping[str, Any], user: Account) -> dict[str, Any]:
    """One call of the file system service. Raises: RpcError."""
    handler = _METHODS.get(method)
    if handler is None:
        raise RpcError("unimplemented", f"{method} is not in this loopback server")
    path = resolve(body.get("path") or body.get("source") or "", user)
    try:
        return await handler(machine, path, body, user)
    except FileNotFoundError as error:
        raise RpcError("not_found", f"path '{path}' does not exist") from error
    except FileExistsError as error:
        raise RpcError("already_exists", f"directory already exists: {path}") from error
    except NotADirectoryError as error:
        raise RpcError("invalid_argument", f"path is not a directory: {path}") from error
    except OSError as error:
        raise RpcError("internal", f"{path}: {error.strerror}") from error


async def _stat(machine: Machine, path: str, _body: Mapping[str, Any], _user: Account) -> dict[str, Any]:
    return {"entry": describe(await machine.guest.stat(path))}


async def _list(machine: Machine, path: str, body: Mapping[str, Any], _user: Account) -> dict[str, Any]:
    entries = await machine.guest.list(path, depth=body.get("depth") or 1)
    return {"entries": [describe(entry) for entry in entries]}


async def _make(machine: Machine, path: str, _body: Mapping[str, Any], user: Account) -> dict[str, Any]:
    try:
        entry = await machine.guest.stat(path)
    except FileNotFoundError:
        await machine.guest.make_folder(path, owner=user.uid)
        return await _stat(machine, path, {}, user)
    if stat.S_ISDIR(entry.mode):
        raise FileExistsError(path)
    raise RpcError("invalid_argument", f"path already exists but it is not a directory: {path}")


async def _move(machine: Machine, path: str, body: Mapping[str, Any], user: Account) -> dict[str, Any]:
    target = resolve(body.get("destination", ""), user)
    await machine.guest.move(path, target)
    return await _stat(machine, target, {}, user)


async def _remove(machine: Machine, path: str, _body: Mapping[str, Any], _user: Account) -> dict[str, Any]:
    await machine.guest.remove(path)
    return {}


_METHODS = {"Stat": _stat, "ListDir": _list, "MakeDir": _make, "Move": _move, "Remove": _remove}


def describe(entry: Entry) -> dict[str, Any]:
    """An entry as envd writes it: numbers of 64 bits are strings, and a link has the type of what it leads to."""
    kind = "DIRECTORY" if stat.S_ISDIR(entry.beyond) else "FILE"
    found = {
        "name": PurePosixPath(entry.path).name,
        "type": f"FILE_TYPE_{kind}",
        "path": entry.path,
        "size": str(entry.size),
        "mode": stat.S_IMODE(entry.mode),
        "permissions": stat.filemode(entry.mode),
        "owner": _NAMES.get(entry.uid, str(entry.uid)),
        "group": _NAMES.get(entry.gid, str(entry.gid)),
        "modifiedTime": datetime.fromtimestamp(entry.mtime, UTC).isoformat().replace("+00:00", "Z"),
    }
    return {**found, "symlinkTarget": entry.target, "isSymlink": True} if entry.target else found
