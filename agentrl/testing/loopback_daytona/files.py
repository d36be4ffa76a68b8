"""Files through the toolbox of the loopback provider. Bulk transfers are what the SDK uses for single files too."""

from __future__ import annotations

import errno
import re
import secrets
from datetime import UTC, datetime
from stat import S_ISDIR, S_ISREG, filemode

from aiohttp import BodyPartReader, web

from agentrl.testing.guest import Entry
from agentrl.testing.loopback_daytona.machine import Machine
from agentrl.testing.loopback_daytona.shapes import Refused
from agentrl.testing.loopback_daytona.toolbox import Toolbox

STATUS = {errno.ENOENT: 404, errno.EACCES: 403, errno.EPERM: 403}


def routes(toolbox: Toolbox) -> list[web.RouteDef]:
    """What the SDK's file system asks for."""
    return [
        toolbox.route("POST", "/files/bulk-upload", upload, "write"),
        toolbox.route("POST", "/files/bulk-download", download, "read"),
        toolbox.route("GET", "/files/download", download_one, "read"),
        toolbox.route("GET", "/files/info", info, "read"),
        toolbox.route("GET", "/files", list_folder, "read"),
        toolbox.route("DELETE", "/files", remove, "write"),
        toolbox.route("POST", "/files/folder", make_folder, "write"),
        toolbox.route("POST", "/files/move", move, "write"),
        toolbox.route("POST", "/files/permissions", permissions, "write"),
    ]


async def upload(machine: Machine, request: web.Request) -> web.Response:
    """Parts ``files[N].path`` and ``files[N].file``, in this order."""
    paths: dict[str, str] = {}
    errors, written = [], []
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader), "no nested parts"
        number, _, kind = (part.name or "").partition(".")
        data = bytes(await part.read())
        if kind == "path":
            paths[number] = data.decode()
        elif (path := paths.get(number)) is None:
            errors.append(f"{part.name}: no path was sent before it")
        elif (problem := await _write(machine, path, data)) is not None:
            errors.append(problem)
        else:
            written.append(path)
    if errors:
        return web.json_response({"errors": errors, "files": written}, status=400)
    return web.json_response({"files": written})


async def _write(machine: Machine, path: str, data: bytes) -> str | None:
    try:
        await machine.started.write(path, data, user=machine.inside)
    except OSError as error:
        return f"{path}: open {path}: {error.strerror}"
    return None


async def download(machine: Machine, request: web.Request) -> web.Response:
    """A multipart answer with a part for each path: its bytes, or an ``error``."""
    boundary = secrets.token_hex(16)
    body = bytearray()
    for path in (await request.json())["paths"]:
        try:
            kind, data = "file", await _read(machine, path)
        except OSError as error:
            kind, data = "error", f"open {path}: {error.strerror}".encode()
        quoted = re.sub(r'(["\\])', r"\\\1", path)
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{kind}"; filename="{quoted}"\r\n\r\n'
        body += head.encode() + data + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    return web.Response(body=bytes(body), headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})


async def download_one(machine: Machine, request: web.Request) -> web.Response:
    """The bytes alone."""
    try:
        return web.Response(body=await _read(machine, request.query["path"]), content_type="application/octet-stream")
    except OSError as error:
        raise _refused(error, request.query["path"]) from error


async def _read(machine: Machine, path: str) -> bytes:
    entry = await machine.started.stat(path, user=machine.inside)
    if not S_ISREG(entry.mode) and S_ISDIR(entry.mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", path)
    return await machine.started.read(path, user=machine.inside)


async def info(machine: Machine, request: web.Request) -> web.Response:
    """One entry."""
    path = request.query["path"]
    try:
        return web.json_response(_entry(await machine.started.stat(path, user=machine.inside)))
    except OSError as error:
        raise _refused(error, path) from error


async def list_folder(machine: Machine, request: web.Request) -> web.Response:
    """The entries of a folder."""
    path = request.query.get("path") or machine.home
    try:
        entries = await machine.started.list(path, user=machine.inside)
    except OSError as error:
        raise _refused(error, path) from error
    return web.json_response([_entry(entry) for entry in entries])


async def remove(machine: Machine, request: web.Request) -> web.Response:
    """A file; a folder only if that is meant."""
    path = request.query["path"]
    try:
        entry = await machine.started.stat(path, user=machine.inside)
        if S_ISDIR(entry.mode) and request.query.get("recursive", "").lower() != "true":
            raise Refused(400, f"bad request: {path} is a directory, use the recursive flag")
        await machine.started.remove(path, user=machine.inside)
    except OSError as error:
        raise _refused(error, path) from error
    return web.Response(status=204)


async def make_folder(machine: Machine, request: web.Request) -> web.Response:
    """With those above it; one that is there is fine."""
    path, mode = request.query["path"], int(request.query.get("mode", "755"), 8)
    try:
        await machine.started.make_folder(path, mode=mode, user=machine.inside)
    except FileExistsError:
        pass
    except OSError as error:
        raise _refused(error, path) from error
    return web.Response(status=201)


async def move(machine: Machine, request: web.Request) -> web.Response:
    """Rename."""
    source, target = request.query["source"], request.query["destination"]
    try:
        await machine.started.move(source, target, user=machine.inside)
    except OSError as error:
        raise _refused(error, source) from error
    return web.Response()


async def permissions(machine: Machine, request: web.Request) -> web.Response:
    """The mode only; a guest knows no other owners."""
    path = request.query["path"]
    try:
        if "mode" in request.query:
            await machine.started.chmod(path, int(request.query["mode"], 8), user=machine.inside)
    except OSError as error:
        raise _refused(error, path) from error
    return web.Response()


def _refused(error: OSError, path: str) -> Refused:
    status = STATUS.get(error.errno or 0, 400)
    return Refused(status, f"{'not found' if status == 404 else 'bad request'}: {path}: {error.strerror}")


def _entry(entry: Entry) -> dict[str, object]:
    when = datetime.fromtimestamp(entry.mtime, UTC)
    return {
        "name": entry.path.rpartition("/")[2],
        "path": entry.path,
        "isDir": S_ISDIR(entry.mode),
        "mode": filemode(entry.mode),
        "permissions": f"{entry.mode & 0o7777:04o}",
        "size": entry.size,
        "owner": str(entry.uid),
        "group": str(entry.gid),
        "modTime": f"{when:%Y-%m-%d %H:%M:%S} +0000 UTC",
        "modifiedAt": when.isoformat(),
    }
