"""The control plane: sandboxes and templates over REST."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from agentrl.errors import SandboxError
from agentrl.testing.faults import Primitive
from agentrl.testing.loopback_e2b.errors import ApiError
from agentrl.testing.loopback_e2b.machines import Machine

if TYPE_CHECKING:
    from agentrl.testing.loopback_e2b.server import LoopbackE2B

DEFAULT_LIFE_SEC = 15.0
LONGEST_LIFE_SEC = 24 * 3600
PAGE = 100

PRIMITIVES: Mapping[tuple[str, str], Primitive] = {
    ("POST", "/sandboxes"): "create",
    ("POST", "/v2/sandboxes"): "create",
    ("GET", "/sandboxes"): "list",
    ("GET", "/v2/sandboxes"): "list",
    ("GET", "/sandboxes/{id}"): "get",
    ("POST", "/sandboxes/{id}/connect"): "get",
    ("POST", "/v2/sandboxes/{id}/connect"): "get",
    ("DELETE", "/sandboxes/{id}"): "delete",
    ("POST", "/sandboxes/{id}/timeout"): "keep_alive",
    ("POST", "/sandboxes/{id}/refreshes"): "keep_alive",
    ("POST", "/v3/templates"): "prepare",
    ("GET", "/templates/{id}/files/{hash}"): "prepare",
    ("PUT", "/uploads/{hash}"): "prepare",
    ("POST", "/v2/templates/{id}/builds/{build}"): "prepare",
    ("GET", "/templates/{id}/builds/{build}/status"): "prepare",
    ("GET", "/templates/aliases/{name}"): "prepare",
    ("GET", "/templates/{id}"): "prepare",
}


class Control:
    """The handlers."""

    def __init__(self, server: LoopbackE2B) -> None:
        self._server = server
        self._by_key: dict[str, Machine] = {}
        self._making: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._page_keys = itertools.count(1)

    def routes(self) -> list[web.RouteDef]:
        """For aiohttp's router."""
        return [
            *(web.post(path, self.create) for path in ("/sandboxes", "/v2/sandboxes")),
            *(web.get(path, self.list) for path in ("/sandboxes", "/v2/sandboxes")),
            web.get("/sandboxes/{id}", self.get),
            web.delete("/sandboxes/{id}", self.kill),
            web.post("/sandboxes/{id}/timeout", self.set_timeout),
            web.post("/sandboxes/{id}/refreshes", self.refresh),
            web.post("/sandboxes/{id}/pause", self.pause),
            web.get("/sandboxes/{id}/metrics", self.metrics),
            *(web.post(f"{version}/sandboxes/{{id}}/connect", self.connect) for version in ("", "/v2")),
            web.post("/v3/templates", self.request_build),
            web.get("/templates/{id}/files/{hash}", self.where_to_upload),
            web.put("/uploads/{hash}", self.upload),
            web.post("/v2/templates/{id}/builds/{build}", self.start_build),
            web.get("/templates/{id}/builds/{build}/status", self.build_status),
            web.get("/templates/aliases/{name}", self.alias),
            web.get("/templates/{id}", self.template),
            web.delete("/templates/{id}", self.delete_template),
        ]

    # ------------------------------------------------------------------------------------------------ sandboxes

    async def create(self, request: web.Request) -> web.Response:
        """A new machine, or the one that the same idempotency key has made before."""
        key = request.headers.get("Idempotency-Key")
        if key is None:
            machine = await self._boot(await request.json())
        else:
            async with self._making[key]:
                known = self._by_key.get(key)
                if known is None or known.id not in self._server.machines:
                    self._by_key[key] = await self._boot(await request.json())
            machine = self._by_key[key]
        return web.json_response(machine.opened(), status=201)

    async def _boot(self, body: Mapping[str, Any]) -> Machine:
        life = float(body.get("timeout", DEFAULT_LIFE_SEC))
        if life > LONGEST_LIFE_SEC:
            raise ApiError(400, "Timeout cannot be greater than 24 hours")
        template = self._server.builder.find(body["templateID"])
        if template is None or template.layers is None:
            raise ApiError(404, f"template '{body['templateID']}' not found")
        try:
            guest = await self._server.host.start(
                layers=template.layers, cpus=template.cpus, memory_mb=template.memory_mb
            )
        except SandboxError as error:
            raise ApiError(500, str(error)) from error
        network = body.get("network") or {}
        machine = Machine(
            guest=guest,
            template=template,
            metadata=body.get("metadata") or {},
            env=body.get("envVars") or {},
            path=self._server.host.path,
            network=network,
            traffic_token=None if network.get("allowPublicTraffic", True) else secrets.token_hex(16),
            on_death=self._server.forget,
        )
        self._server.add(machine)
        machine.live_for(life)
        return machine

    async def list(self, request: web.Request) -> web.Response:
        """Those that match, page by page."""
        wanted = {unquote(k): unquote(v) for k, v in parse_qsl(request.query.get("metadata", ""))}
        states = request.query.get("state", "running,paused").split(",")
        rows = [
            machine.brief()
            for machine in self._server.machines.values()
            if wanted.items() <= machine.metadata.items() and machine.brief()["state"] in states
        ]
        start, size = int(request.query.get("nextToken", 0)), int(request.query.get("limit", PAGE))
        size = min(size, self._server.page_size)
        more = {"x-next-token": str(start + size)} if start + size < len(rows) else {}
        ghosts = [self._ghost(wanted)] if self._server.faults.take("list", "ghost") is not None else []
        return web.json_response(ghosts + rows[start : start + size], headers=more)

    def _ghost(self, metadata: Mapping[str, str]) -> dict[str, object]:
        alive = next(iter(self._server.machines.values()), None)
        row = alive.brief() if alive is not None else dict(_GHOST)
        return {**row, "sandboxID": f"ighost{next(self._page_keys)}", "metadata": dict(metadata)}

    async def get(self, request: web.Request) -> web.Response:
        """All that is known of one."""
        return web.json_response(self._find(request).brief())

    async def kill(self, request: web.Request) -> web.Response:
        """Answered when nothing is left of it."""
        await self._find(request).kill()
        return web.Response(status=204)

    async def set_timeout(self, request: web.Request) -> web.Response:
        """An end that counts from now."""
        life = float((await request.json())["timeout"])
        if life > LONGEST_LIFE_SEC:
            raise ApiError(400, "Timeout cannot be greater than 24 hours")
        self._find(request).live_for(life)
        return web.Response(status=204)

    async def refresh(self, request: web.Request) -> web.Response:
        """At least so many seconds more."""
        body = await request.json() if request.body_exists else {}
        self._find(request).live_for(float(body.get("duration", DEFAULT_LIFE_SEC)), shorten=False)
        return web.Response(status=204)

    async def pause(self, request: web.Request) -> web.Response:
        """Unreachable until somebody connects; its processes are not frozen here."""
        machine = self._find(request)
        if machine.paused:
            raise ApiError(409, f"sandbox {machine.id} is already paused")
        machine.paused = True
        return web.Response(status=204)

    async def connect(self, request: web.Request) -> web.Response:
        """Its tokens; a paused one wakes up."""
        machine = self._find(request)
        body = await request.json() if request.body_exists else {}
        status, machine.paused = 201 if machine.paused else 200, False
        machine.live_for(float(body.get("timeout") or DEFAULT_LIFE_SEC), shorten=False)
        return web.json_response(machine.opened(), status=status)

    async def metrics(self, request: web.Request) -> web.Response:
        """Nobody measures here."""
        self._find(request)
        return web.json_response([])

    def _find(self, request: web.Request) -> Machine:
        sandbox_id = request.match_info["id"]
        if sandbox_id not in self._server.machines:
            raise ApiError(404, f"sandbox '{sandbox_id}' not found")
        return self._server.machines[sandbox_id]

    # ------------------------------------------------------------------------------------------------ templates

    async def request_build(self, request: web.Request) -> web.Response:
        """Where to send the steps."""
        build = self._server.builder.request(await request.json())
        answer = {
            "templateID": build.template.id,
            "buildID": build.id,
            "public": False,
            "names": build.template.names,
            "aliases": build.template.names,
            "tags": ["default"],
        }
        return web.json_response(answer, status=202)

    async def where_to_upload(self, request: web.Request) -> web.Response:
        """An address for the files of a COPY step, unless they are here already."""
        digest = request.match_info["hash"]
        answer: dict[str, Any] = {"present": self._server.builder.has(digest)}
        if not answer["present"]:
            answer["url"] = f"{self._server.url}/uploads/{digest}"
        return web.json_response(answer, status=201)

    async def upload(self, request: web.Request) -> web.Response:
        """The files of a COPY step, as a tar archive."""
        self._server.builder.store(request.match_info["hash"], await request.read())
        return web.Response()

    async def start_build(self, request: web.Request) -> web.Response:
        """Go."""
        self._server.builder.start(self._build(request), await request.json())
        return web.Response(status=202)

    async def build_status(self, request: web.Request) -> web.Response:
        """How far it is."""
        return web.json_response(self._build(request).report(int(request.query.get("logsOffset", 0))))

    def _build(self, request: web.Request) -> Any:
        build = self._server.builder.builds.get(request.match_info["build"])
        if build is None:
            raise ApiError(404, "build not found")
        return build

    async def alias(self, request: web.Request) -> web.Response:
        """Which template a name stands for."""
        template = self._server.builder.find(request.match_info["name"])
        if template is None:
            raise ApiError(404, "template alias not found")
        return web.json_response({"templateID": template.id, "public": False})

    async def template(self, request: web.Request) -> web.Response:
        """A template with its builds, newest first."""
        template = self._server.builder.find(request.match_info["id"])
        if template is None:
            raise ApiError(404, "template not found")
        builds = [b for b in self._server.builder.builds.values() if b.template is template]
        rows = [{"buildID": b.id, "status": b.status} for b in reversed(builds)]
        return web.json_response({"templateID": template.id, "names": template.names, "builds": rows})

    async def delete_template(self, request: web.Request) -> web.Response:
        """Forget it; machines made of it live on."""
        template = self._server.builder.find(request.match_info["id"])
        if template is None:
            raise ApiError(404, "template not found")
        self._server.builder.templates.remove(template)
        return web.Response(status=204)


_GHOST = {
    "templateID": "base",
    "clientID": "loopback",
    "startedAt": "2020-01-01T00:00:00Z",
    "endAt": "2020-01-01T00:01:00Z",
    "cpuCount": 2,
    "memoryMB": 512,
    "diskSizeMB": 10240,
    "state": "running",
    "envdVersion": "0.6.13",
}
