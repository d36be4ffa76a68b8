"""The JSON of the loopback provider, every field that a version of the SDK requires included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from agentrl.testing.loopback_daytona.machine import Machine, Origin

ORGANIZATION = "11111111-2222-4333-8444-555555555555"
QUOTA = "Total disk limit exceeded. Maximum allowed: 30GiB."
INJECTED = "injected fault"


class DaytonaWords:
    """How Daytona says no. Implements :class:`agentrl.testing.faulty.Words`."""

    def error(self, status: int, message: str) -> web.Response:
        """A failure in the API's own shape."""
        return refusal(status, message)

    def quota(self, message: str) -> web.Response:
        """A quota that is used up is a bad request like any other; only the text tells."""
        return refusal(400, QUOTA if message == INJECTED else message)


def refusal(status: int, message: str) -> web.Response:
    """A failure with ``status``. Integers only: the generated clients are strict."""
    body = {"statusCode": status, "error": message, "message": message, "timestamp": moment(0.0), "path": ""}
    return web.json_response(body, status=status)


class Refused(Exception):
    """A request is answered by :func:`refusal`."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


def moment(seconds: float) -> str:
    """An ISO date of Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def machine_json(machine: Machine, proxy_url: str, *, minute_sec: float) -> dict[str, Any]:
    """A machine, also as an item of a list."""
    ends = moment(machine.created_at + machine.ttl * minute_sec) if machine.ttl else None
    return {
        "id": machine.id,
        "organizationId": ORGANIZATION,
        "name": machine.name,
        "snapshot": machine.origin.snapshot,
        "user": machine.user,
        "env": machine.env,
        "labels": machine.labels,
        "public": machine.public,
        "networkBlockAll": machine.network_block_all,
        "kvm": False,
        "target": machine.target,
        "cpu": machine.origin.cpu,
        "gpu": 0,
        "memory": machine.origin.memory,
        "disk": machine.origin.disk,
        "state": machine.state,
        "desiredState": "destroyed" if machine.state in ("destroying", "destroyed") else "started",
        "errorReason": machine.error,
        "recoverable": False,
        "backupState": "None",
        "autoStopInterval": machine.auto_stop,
        "autoArchiveInterval": 10080,
        "autoDeleteInterval": machine.auto_delete,
        "autoDestroyAt": ends,
        "createdAt": moment(machine.created_at),
        "updatedAt": moment(machine.active_at),
        "lastActivityAt": moment(machine.active_at),
        "sandboxClass": "container",
        "daemonVersion": "0.0.0-loopback",
        "runnerId": "loopback",
        "toolboxProxyUrl": proxy_url,
    }


@dataclass(slots=True)
class Snapshot:
    """An image that the provider keeps. ``state``: one of its words; ``source``: the machine that it was captured from."""

    id: str
    name: str
    origin: Origin
    state: str
    image: str | None = None
    source: str | None = None
    error: str | None = None
    created_at: float = field(default=0.0)


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot, also as an item of a list."""
    return {
        "id": snapshot.id,
        "organizationId": ORGANIZATION,
        "general": False,
        "name": snapshot.name,
        "imageName": snapshot.image,
        "state": snapshot.state,
        "size": 1,
        "entrypoint": None,
        "cpu": snapshot.origin.cpu,
        "gpu": 0,
        "mem": snapshot.origin.memory,
        "disk": snapshot.origin.disk,
        "errorReason": snapshot.error,
        "createdAt": moment(snapshot.created_at),
        "updatedAt": moment(snapshot.created_at),
        "lastUsedAt": None,
        "sourceSandboxId": snapshot.source,
        "sandboxClass": "container",
    }


def filtered(labels: Mapping[str, str], machine: Machine) -> bool:
    """Whether a machine carries all of ``labels``."""
    return labels.items() <= machine.labels.items()
