"""A registry on this host's loopback, which engines trust without TLS, with one image of one small file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import Any, Self

from aiohttp import web

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """``image``: what to pull. ``pulls``: how often somebody asked what it consists of."""

    def __init__(self) -> None:
        files = _tar("hello", b"hello\n")
        layer = gzip.compress(files)
        config = json.dumps(
            {"os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [_digest(files)]}}
        ).encode()
        parts = [_part(CONFIG, config), _part(LAYER, layer)]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}
        self._manifest = json.dumps(manifest).encode()
        self._blobs = {_digest(config): config, _digest(layer): layer}
        self.pulls = 0

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/v2/", _answer_ping)
        app.router.add_get("/v2/{name}/manifests/{tag}", self._answer_manifest)
        app.router.add_get("/v2/{name}/blobs/{digest}", self._answer_blob)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"
        self.image = f"{self.address}/small:1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer_manifest(self, request: web.Request) -> web.Response:
        if request.match_info["name"] != "small":
            return web.json_response(
                {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}, status=404
            )
        self.pulls += request.method == "GET"
        headers = {"Content-Type": MANIFEST, "Docker-Content-Digest": _digest(self._manifest)}
        return web.Response(body=self._manifest, headers=headers)

    async def _answer_blob(self, request: web.Request) -> web.Response:
        return web.Response(body=self._blobs[request.match_info["digest"]])


async def _answer_ping(_request: web.Request) -> web.Response:
    return web.json_response({})


def _part(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "size": len(data), "digest": _digest(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _tar(name: str, data: bytes) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        tar.addfile(entry, io.BytesIO(data))
    return target.getvalue()
