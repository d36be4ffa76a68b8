"""What runs: images, limits, commands and how they ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits of one sandbox; ``None`` leaves the backend's default."""

    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """Something baked into an image once per digest: files are written (mode 0755), then ``commands`` run as root.

    ``files``: path → bytes. ``fetched``: path → a blocking function that gets a file onto the host and returns where it is, for
    what is big or has to be downloaded. It is called only when the layer is baked, so ``name`` must tell versions apart.
    :func:`agentrl.tools.upload.write_layer` writes both into a sandbox.
    """

    name: str
    commands: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    fetched: Mapping[str, Callable[[], Path]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Hex SHA-256 over name, commands, files and the paths of what is fetched."""
        words = [self.name, list(self.commands), *([sorted(self.fetched)] if self.fetched else [])]
        h = hashlib.sha256(json.dumps(words).encode())
        for path in sorted(self.files):
            h.update(path.encode() + b"\0" + hashlib.sha256(self.files[path]).digest())
        return h.hexdigest()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a sandbox must be. ``image`` None: the backend's default. ``reach``: TCP ports on the host's loopback
    (the gateway) that the sandbox must be able to reach; nothing else of the host is reachable unless ``network``.
    ``layers`` are baked onto the image by the lease: a backend's ``create`` never sees them."""

    image: str | None = None
    resources: Resources = Resources()
    env: Mapping[str, str] = field(default_factory=dict)
    reach: tuple[int, ...] = ()
    network: bool = False
    layers: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. ``exit_code`` is real: 0..255, 128+n for signal n. Output is capped with the tail kept
    (``truncated``). ``timed_out``: the process tree was killed, output is what there was."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do. ``reach``: how its machines reach the host; ``tunnel``: the host can open a connection to a port
    inside (:meth:`~agentrl.sandbox.Sandbox.port_url`). ``keep_alive_sec``: how often a machine in use must be told so, or None.
    ``account``: whose quota machines count against (an address, a digest of a key, never the key); equal ones share limits.
    """

    users: bool
    network_policy: bool
    resources: frozenset[str]
    snapshot: bool
    reach: frozenset[Literal["loopback", "bridge", "public", "tunnel"]]
    keep_alive_sec: float | None = None
    account: str = ""


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A machine as its provider lists it. ``created_at``: Unix seconds."""

    id: str
    labels: Mapping[str, str]
    created_at: float
