"""The control plane of the loopback provider: machines and snapshots over REST, as the SDK asks for them."""

from __future__ import annotations

import json
import time
from typing import Any

from aiohttp import web

from agentrl.testing.loopback_daytona.account import Account
from agentrl.testing.loopback_daytona.machine import Machine, Origin
from agentrl.testing.loopback_daytona.shapes import Refused, Snapshot, filtered, machine_json, snapshot_json

SETTABLE = {"autostop": "auto_stop", "autodelete": "auto_delete", "ttl": "ttl"}
KNOWN_FOR_NOTHING = ("autoarchive", "autopause")


class Control:
    """Handlers. ``origin``: the server's own URL, known once it listens; ``page_size``: of lists."""

    def __init__(self, account: Account, page_size: int) -> None:
        self._account, self._page_size = account, page_size
        self.origin = ""

    def routes(self) -> list[web.RouteDef]:
        """What the SDK asks for."""
        one = "/api/sandbox/{name}"
        return [
            web.post("/api/sandbox", self.create),
            web.get("/api/sandbox", self.list_machines),
            web.get(one, self.get),
            web.delete(one, self.delete),
            web.post(one + "/start", self.start),
            web.post(one + "/stop", self.stop),
            web.post(one + "/archive", self.archive),
            web.post(one + "/last-activity", self.touch),
            web.put(one + "/labels", self.set_labels),
            web.post(one + "/snapshot", self.capture),
            web.get(one + "/toolbox-proxy-url", self.toolbox_url),
            web.get(one + "/ports/{port:\\d+}/preview-url", self.preview_url),
            web.post(one + "/{setting:[a-z]+}/{value:-?\\d+}", self.set_interval),
            web.post("/api/snapshots", self.create_snapshot),
            web.get("/api/snapshots", self.list_snapshots),
            web.get("/api/snapshots/{name}", self.get_snapshot),
            web.delete("/api/snapshots/{name}", self.delete_snapshot),
            web.post("/api/snapshots/{name}/activate", self.activate),
            web.post("/api/snapshots/{name}/deactivate", self.deactivate),
        ]

    # ----------------------------------------------------------------------------------------------------- machines

    async def create(self, request: web.Request) -> web.Response:
        """A machine that is started, or on its way."""
        machine = await self._account.create(await request.json())
        return self._answer(machine)

    async def list_machines(self, request: web.Request) -> web.Response:
        """Pages by cursor. A ghost is a machine that is listed though it is gone."""
        wanted: dict[str, str] = json.loads(request.query.get("labels", "{}"))
        machines = [machine for machine in self._account.machines.values() if filtered(wanted, machine)]
        if self._account.faults.take("list", "ghost"):
            machines += [machine for machine in self._account.graveyard.values() if filtered(wanted, machine)]
        start = int(request.query.get("cursor") or 0)
        end = start + int(request.query.get("limit") or self._page_size)
        items = [self.shown(machine) for machine in machines[start:end]]
        return web.json_response({"items": items, "nextCursor": str(end) if end < len(machines) else None})

    async def get(self, request: web.Request) -> web.Response:
        """By id or name."""
        return self._answer(self._named(request))

    async def delete(self, request: web.Request) -> web.Response:
        """Answered while the machine is going; it is not found once it is gone."""
        machine = self._named(request)
        machine.state = "destroying"
        self._account.later(self._account.delete(machine))
        return self._answer(machine)

    async def start(self, request: web.Request) -> web.Response:
        """Boot again what was stopped."""
        machine = self._named(request)
        if machine.state != "stopped":
            raise Refused(400, f"Sandbox is {machine.state}, not stopped")
        machine.state = "starting"
        self._account.later(self._account.start(machine))
        return self._answer(machine)

    async def stop(self, request: web.Request) -> web.Response:
        """End what runs."""
        machine = self._named(request)
        await self._account.stop(machine)
        return self._answer(machine)

    async def archive(self, request: web.Request) -> web.Response:
        """Only what is stopped."""
        machine = self._named(request)
        if machine.state != "stopped":
            raise Refused(400, "Sandbox is not stopped")
        machine.state = "archived"
        return self._answer(machine)

    async def touch(self, request: web.Request) -> web.Response:
        """It is in use."""
        self._named(request).active_at = time.time()
        return web.Response(status=201)

    async def set_labels(self, request: web.Request) -> web.Response:
        """Instead of the labels that it has."""
        machine = self._named(request)
        machine.labels = dict((await request.json())["labels"])
        return web.json_response({"labels": machine.labels})

    async def set_interval(self, request: web.Request) -> web.Response:
        """Auto-stop, auto-delete, time to live."""
        machine, setting = self._named(request), request.match_info["setting"]
        if setting in SETTABLE:
            setattr(machine, SETTABLE[setting], int(request.match_info["value"]))
        elif setting not in KNOWN_FOR_NOTHING:
            raise Refused(404, f"Cannot POST {request.path}")
        return self._answer(machine)

    async def toolbox_url(self, request: web.Request) -> web.Response:
        """Where the machine's own API is."""
        self._named(request)
        return web.json_response({"url": f"{self.origin}/toolbox"})

    async def preview_url(self, request: web.Request) -> web.Response:
        """Where a port of it is reached, and the token that it takes."""
        machine, port = self._named(request), request.match_info["port"]
        url = f"{self.origin}/preview/{port}-{machine.id}"
        return web.json_response({"sandboxId": machine.id, "url": url, "token": machine.token})

    # ---------------------------------------------------------------------------------------------------- snapshots

    async def capture(self, request: web.Request) -> web.Response:
        """Of a machine that runs; answered before it is done."""
        machine, name = self._named(request), (await request.json())["name"]
        if machine.state != "started":
            raise Refused(400, f"Sandbox is {machine.state}, not started")
        snapshot = self._account.register(name, Origin(name), source=machine.id)
        machine.state = "snapshotting"
        self._account.later(self._account.capture(machine, snapshot))
        return self._answer(machine)

    async def create_snapshot(self, request: web.Request) -> web.Response:
        """Of an image."""
        body = await request.json()
        sizes = {key: body[key] for key in ("cpu", "memory", "disk") if body.get(key) is not None}
        snapshot = self._account.register(body["name"], Origin(body["name"], (), **sizes), image=body.get("imageName"))
        self._account.later(self._account.build(snapshot))
        return self._kept(snapshot)

    async def list_snapshots(self, request: web.Request) -> web.Response:
        """Pages by number."""
        page, limit = int(request.query.get("page") or 1), int(request.query.get("limit") or self._page_size)
        every = list(self._account.snapshots.values())
        items = [snapshot_json(snapshot) for snapshot in every[(page - 1) * limit : page * limit]]
        pages = -(-len(every) // limit)
        return web.json_response({"items": items, "total": len(every), "page": page, "totalPages": pages})

    async def get_snapshot(self, request: web.Request) -> web.Response:
        """By id or name."""
        return self._kept(self._account.find_snapshot(request.match_info["name"]))

    async def delete_snapshot(self, request: web.Request) -> web.Response:
        """For good; machines made of it live on."""
        del self._account.snapshots[self._account.find_snapshot(request.match_info["name"]).id]
        return web.Response()

    async def activate(self, request: web.Request) -> web.Response:
        """What was inactive can be used again."""
        snapshot = self._account.find_snapshot(request.match_info["name"])
        if snapshot.state != "inactive":
            raise Refused(400, f"Snapshot {snapshot.name} is {snapshot.state}, not inactive")
        snapshot.state = "active"
        return self._kept(snapshot)

    async def deactivate(self, request: web.Request) -> web.Response:
        """It cannot be used until activated, as the provider does to what nobody uses for two weeks."""
        snapshot = self._account.find_snapshot(request.match_info["name"])
        snapshot.state = "inactive"
        return web.Response(status=204)

    # ------------------------------------------------------------------------------------------------------ the parts

    def _named(self, request: web.Request) -> Machine:
        return self._account.find(request.match_info["name"])

    def shown(self, machine: Machine) -> dict[str, Any]:
        """A machine as the API shows it."""
        return machine_json(machine, f"{self.origin}/toolbox", minute_sec=self._account.minute_sec)

    def _answer(self, machine: Machine) -> web.Response:
        return web.json_response(self.shown(machine))

    def _kept(self, snapshot: Snapshot) -> web.Response:
        return web.json_response(snapshot_json(snapshot))
