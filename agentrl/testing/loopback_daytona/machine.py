"""One machine of the loopback provider: its state, its clocks and the guest in which commands really run. Not here: HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from agentrl.testing.guest import Guest, GuestGone

if TYPE_CHECKING:
    from agentrl.testing.loopback_daytona.sessions import Session

DEFAULT_USER = "daytona"
DEFAULT_AUTO_STOP_MIN = 15


@dataclass(frozen=True, slots=True)
class Origin:
    """What a machine is made from: files, and resources in cores and GiB."""

    snapshot: str | None = None
    layers: tuple[Path, ...] = ()
    cpu: int = 1
    memory: int = 1
    disk: int = 3


@dataclass(slots=True)
class Machine:
    """``state``: one of the provider's words. Times are Unix seconds; intervals are the provider's minutes, 0 is never."""

    id: str
    name: str
    origin: Origin
    user: str
    env: dict[str, str]
    labels: dict[str, str]
    network_block_all: bool
    public: bool
    target: str
    auto_stop: int
    auto_delete: int
    ttl: int
    path: str
    state: str = "creating"
    error: str | None = None
    guest: Guest | None = None
    created_at: float = field(default_factory=time.time)
    active_at: float = field(default_factory=time.time)
    stopped_at: float | None = None
    token: str = ""
    sessions: dict[str, Session] = field(default_factory=dict)
    connections: set[asyncio.Transport] = field(default_factory=set)

    @property
    def started(self) -> Guest:
        """Its guest. Raises: GuestGone while it is not started."""
        if self.state != "started" or self.guest is None:
            raise GuestGone(f"{self.id} is {self.state}")
        return self.guest

    @property
    def inside(self) -> str:
        """The user of commands, of the two that a guest has."""
        return "root" if self.user == "root" else "user"

    @property
    def home(self) -> str:
        """Where commands start."""
        return "/root" if self.user == "root" else "/home/user"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a command finds in its environment."""
        own = {"PATH": self.path, "HOME": self.home, "USER": self.user, "LOGNAME": self.user, "LANG": "C.UTF-8"}
        return {**own, **self.env, **(more or {})}

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """While it works for a request, which its death cuts."""
        connection = request.transport
        if connection is not None:
            self.connections.add(connection)
        try:
            yield
        finally:
            if connection is not None:
                self.connections.discard(connection)

    async def end(self, state: str) -> None:
        """Die: connections are cut first, so that nobody takes the death for an exit code."""
        self.state, self.stopped_at = state, time.time()
        for connection in self.connections:
            connection.abort()
        self.connections.clear()
        for session in self.sessions.values():
            session.shell.close()
        self.sessions.clear()
        guest, self.guest = self.guest, None
        if guest is not None:
            await guest.destroy()

    def due(self, now: float, minute_sec: float) -> str | None:
        """What its clocks ask for: ``stop``, ``delete`` or nothing. Running processes are no activity."""
        if self.ttl and now > self.created_at + self.ttl * minute_sec:
            return "delete"
        if self.state == "started" and self.auto_stop and now > self.active_at + self.auto_stop * minute_sec:
            return "stop"
        if self.stopped_at is not None and self.state == "stopped" and self.auto_delete >= 0:
            return "delete" if now >= self.stopped_at + self.auto_delete * minute_sec else None
        return None


def ordered(body: Mapping[str, Any], machine_id: str, origin: Origin, path: str, target: str) -> Machine:
    """The machine that a create request asks for."""
    given = {key: value for key, value in body.items() if value is not None}
    return Machine(
        id=machine_id,
        name=given.get("name") or machine_id,
        origin=origin,
        user=given.get("user", DEFAULT_USER),
        env=dict(given.get("env", {})),
        labels=dict(given.get("labels", {})),
        network_block_all=given.get("networkBlockAll", False),
        public=given.get("public", False),
        target=given.get("target", target),
        auto_stop=given.get("autoStopInterval", DEFAULT_AUTO_STOP_MIN),
        auto_delete=given.get("autoDeleteInterval", -1),
        ttl=given.get("ttlMinutes", 0),
        path=path,
    )
