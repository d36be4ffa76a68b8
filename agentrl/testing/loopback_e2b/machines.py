"""The machines that are alive: what they were made with, when they end, and who talks to them right now."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web

from agentrl.testing.faulty import abort
from agentrl.testing.guest import Guest

if TYPE_CHECKING:
    from agentrl.testing.loopback_e2b.builds import Template
    from agentrl.testing.loopback_e2b.ports import Relay
    from agentrl.testing.loopback_e2b.processes import Command

ENVD_VERSION = "0.6.13"


@dataclass(frozen=True, slots=True)
class Account:
    """A user inside. ``home``: where relative paths begin."""

    name: str
    uid: int
    home: str


ACCOUNTS = {"root": Account("root", 0, "/root"), "user": Account("user", 1000, "/home/user")}


@dataclass(eq=False, slots=True)
class Machine:
    """One sandbox. ``token`` opens envd, ``traffic_token`` its other ports; without the latter they are public.

    ``network``: the policy that was asked for. Nobody enforces it: there is no way out anyway.
    """

    guest: Guest
    template: Template
    metadata: Mapping[str, str]
    env: Mapping[str, str]
    network: Mapping[str, Any]
    path: str
    traffic_token: str | None
    on_death: Callable[[Machine], None]
    id: str = field(default_factory=lambda: f"i{secrets.token_hex(10)}")
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    end_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    paused: bool = False
    commands: dict[int, Command] = field(default_factory=dict)
    relays: dict[int, Relay] = field(default_factory=dict)
    talking: dict[int, web.Request] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _death: asyncio.Task[None] | None = None

    def live_for(self, seconds: float, *, shorten: bool = True) -> None:
        """Let it end ``seconds`` from now."""
        end_at = datetime.now(UTC) + timedelta(seconds=seconds)
        if self._timer is not None:
            if not shorten and end_at < self.end_at:
                return
            self._timer.cancel()
        self.end_at = end_at
        self._timer = asyncio.get_running_loop().call_later(seconds, self.kill)

    def kill(self) -> asyncio.Task[None]:
        """Let it die now; the task removes what it leaves."""
        if self._death is None:
            self._death = asyncio.create_task(self._die())
        return self._death

    async def _die(self) -> None:
        self.on_death(self)
        if self._timer is not None:
            self._timer.cancel()
        # Connections first: a client must not see a command end that went with its machine.
        for request in list(self.talking.values()):
            abort(request)
        for relay in self.relays.values():
            relay.close()
        for command in self.commands.values():
            command.abandon()
        await self.guest.destroy()

    async def account(self, name: str) -> Account:
        """Who ``name`` is inside: everybody is root where there is one user only. Raises: KeyError."""
        found = ACCOUNTS.get(name) or await self._look_up(name)
        return found if self.guest.two_users else ACCOUNTS["root"]

    async def _look_up(self, name: str) -> Account:
        for line in (await self.guest.read("/etc/passwd")).decode().splitlines():
            login, _, uid, _, _, home, *_ = line.split(":")
            if login == name:
                return Account(login, int(uid), home)
        raise KeyError(name)

    def brief(self) -> dict[str, object]:
        """What a list says."""
        return {
            "templateID": self.template.id,
            "alias": self.template.names[0],
            "sandboxID": self.id,
            "clientID": "loopback",
            "startedAt": self.started_at.isoformat(),
            "endAt": self.end_at.isoformat(),
            "cpuCount": self.template.cpus or 2,
            "memoryMB": self.template.memory_mb or 512,
            "diskSizeMB": 10240,
            "metadata": dict(self.metadata),
            "state": "paused" if self.paused else "running",
            "envdVersion": ENVD_VERSION,
        }

    def opened(self) -> dict[str, object]:
        """What whoever creates it or connects to it is told."""
        answer: dict[str, object] = {
            "templateID": self.template.id,
            "alias": self.template.names[0],
            "sandboxID": self.id,
            "clientID": "loopback",
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self.token,
        }
        return answer if self.traffic_token is None else {**answer, "trafficAccessToken": self.traffic_token}
