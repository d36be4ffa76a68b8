"""What the loopback provider owns: machines, snapshots, the clocks that end machines, and what it tells its listeners."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentrl.errors import SandboxError
from agentrl.testing.faults import Faults
from agentrl.testing.guest import Host
from agentrl.testing.loopback_daytona.machine import Machine, Origin, ordered
from agentrl.testing.loopback_daytona.shapes import QUOTA, Refused, Snapshot

TICK_SEC = 0.05


class Account:
    """One organisation. ``machines``: those that exist, dead ones not among them; ``graveyard``: those that did;
    ``orders``: what was asked for, by machine."""

    def __init__(self, folder: Path, faults: Faults, *, minute_sec: float, limit: int | None, build_sec: float) -> None:
        self.host = Host(folder / "machines")
        self.faults, self.minute_sec, self.limit, self.build_sec = faults, minute_sec, limit, build_sec
        self.machines: dict[str, Machine] = {}
        self.graveyard: dict[str, Machine] = {}
        self.orders: dict[str, Mapping[str, Any]] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.on_change: Callable[[Machine], None] = lambda _: None
        self._folder = folder
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Start the clocks."""
        self.later(self._keep_time())

    async def aclose(self) -> None:
        """End everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(machine.end("destroyed") for machine in self.machines.values()))
        await self.host.aclose()

    def later(self, work: Any) -> None:
        """Do something in the background for as long as we live."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ----------------------------------------------------------------------------------------------------- machines

    def find(self, name: str) -> Machine:
        """By id or name. Raises: Refused."""
        for machine in self.machines.values():
            if name in (machine.id, machine.name):
                return machine
        raise Refused(404, f"Sandbox with ID or name {name} not found")

    async def create(self, body: Mapping[str, Any]) -> Machine:
        """A machine as ordered, started unless a fault says otherwise. Raises: Refused."""
        origin = self._origin(body)
        if body.get("name") and any(body["name"] == machine.name for machine in self.machines.values()):
            raise Refused(409, f"Sandbox with name {body['name']} already exists")
        if self.limit is not None and len(self.machines) >= self.limit:
            raise Refused(400, QUOTA)
        machine = ordered(body, str(uuid.uuid4()), origin, self.host.path, "loopback")
        machine.token = secrets.token_urlsafe(16)
        self.machines[machine.id], self.orders[machine.id] = machine, body
        fault = self.faults.take("create", "failed", "stuck")
        if fault is None:
            await self.start(machine)
        else:
            machine.state = "pending_build"
            if fault.kind == "failed":
                self.later(self._fail(machine))
        return machine

    async def start(self, machine: Machine) -> None:
        """Boot it, also again; files survive no stop here."""
        origin = machine.origin
        try:
            guest = await self.host.start(layers=origin.layers, cpus=origin.cpu, memory_mb=origin.memory << 10)
        except SandboxError as error:
            self.machines.pop(machine.id, None)
            raise Refused(500, f"the guest did not start: {error}") from error
        if machine.id not in self.machines:  # it was deleted meanwhile
            await guest.destroy()
            return
        machine.guest, machine.state, machine.active_at, machine.stopped_at = guest, "started", time.time(), None
        self.on_change(machine)

    async def stop(self, machine: Machine) -> None:
        """End what runs in it. An ephemeral one is deleted by its clock next."""
        await machine.end("stopped")
        self.on_change(machine)

    async def delete(self, machine: Machine) -> None:
        """End it for good."""
        if self.machines.pop(machine.id, None) is not None:
            self.graveyard[machine.id] = machine
            await machine.end("destroyed")
            self.on_change(machine)

    async def _fail(self, machine: Machine) -> None:
        await asyncio.sleep(self.build_sec)
        machine.state, machine.error = "build_failed", "failed to pull image: manifest unknown"
        self.on_change(machine)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(TICK_SEC)
            for machine in list(self.machines.values()):
                match machine.due(time.time(), self.minute_sec):
                    case "stop":
                        await self.stop(machine)
                    case "delete":
                        await self.delete(machine)

    # ---------------------------------------------------------------------------------------------------- snapshots

    def find_snapshot(self, name: str) -> Snapshot:
        """By id or name. Raises: Refused."""
        for snapshot in self.snapshots.values():
            if name in (snapshot.id, snapshot.name):
                return snapshot
        raise Refused(404, f"Snapshot {name} not found")

    def register(self, name: str, origin: Origin, **about: Any) -> Snapshot:
        """A snapshot that is not built yet. Raises: Refused when the name is taken."""
        if any(name == snapshot.name for snapshot in self.snapshots.values()):
            raise Refused(409, f"Snapshot with name {name} already exists for this organization")
        snapshot = Snapshot(str(uuid.uuid4()), name, origin, "pending", created_at=time.time(), **about)
        self.snapshots[snapshot.id] = snapshot
        return snapshot

    async def build(self, snapshot: Snapshot) -> None:
        """Through the states of a build, as a fault wants it."""
        fault = self.faults.take("prepare", "failed", "stuck")
        for state in ("pending", "building", "pulling"):
            snapshot.state = state
            await asyncio.sleep(self.build_sec / 3)
        if fault is None:
            snapshot.state = "active"
        elif fault.kind == "failed":
            snapshot.state, snapshot.error = "build_failed", "failed to pull image: manifest unknown"

    async def capture(self, machine: Machine, snapshot: Snapshot) -> None:
        """The files of a machine, which is ``snapshotting`` meanwhile. A fault is noticed only in the snapshot, as it is there."""
        fault = self.faults.take("prepare", "failed", "stuck")
        machine.state, snapshot.state = "snapshotting", "snapshotting"
        self.on_change(machine)
        layers: tuple[Path, ...] = ()
        if machine.guest is not None:
            layers = await machine.guest.snapshot(self._folder / "snapshots" / snapshot.id)
        if machine.id in self.machines:
            machine.state = "started"
            self.on_change(machine)
        if fault is None:
            origin = machine.origin
            snapshot.origin = Origin(snapshot.name, layers, origin.cpu, origin.memory, origin.disk)
            snapshot.state = "active"
        elif fault.kind == "failed":
            snapshot.state, snapshot.error = "error", "the capture failed"

    def _origin(self, body: Mapping[str, Any]) -> Origin:
        sizes = {key: body[key] for key in ("cpu", "memory", "disk") if body.get(key) is not None}
        if not body.get("buildInfo"):
            if sizes:
                raise Refused(400, "Cannot specify Sandbox resources when using a snapshot")
            if body.get("snapshot") is None:
                return Origin()
            snapshot = self.find_snapshot(body["snapshot"])
            if snapshot.state != "active":
                raise Refused(400, f"Snapshot {snapshot.name} is {snapshot.state}")
            return snapshot.origin
        return Origin(None, (), **sizes)
