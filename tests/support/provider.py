"""A provider of machines in memory, with the faults that real ones have: the edge behind which the lease is tested."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agentrl.errors import SandboxError, SandboxGone
from agentrl.types import Capabilities, ExecResult, SandboxInfo


@dataclass
class Machine:
    """What it remembers of itself."""

    provider: Provider
    id: str
    spec: object
    labels: Mapping[str, str]
    lifetime_sec: float
    created_at: float = field(default_factory=time.time)
    kept: int = 0
    dead: bool = False

    async def close(self):
        await self.provider.delete(self.id)

    async def keep_alive(self):
        self.kept += 1
        self.provider.kept.set()
        await self.provider.trouble("keep")
        if self.dead:
            raise SandboxGone(self.id)

    async def exec(self, command, *, timeout_sec, **_):
        await asyncio.sleep(0)
        if self.dead:
            raise SandboxGone(self.id)
        return ExecResult(0, b"", b"")


@dataclass
class Provider:
    """``faults``: of ``create``, ``delete``, ``list``, ``prepare`` and ``keep``, one for each call, None for none, until used up.
    A fault of ``create`` is an error that is raised before a machine is made, or ``("made", error)``: after. ``gate``: while it
    is closed nothing is made; ``steps``: how often a call lets others run before it does something."""

    faults: dict[str, list[object]] = field(default_factory=dict)
    keep_alive_sec: float | None = None
    steps: int = 1
    machines: dict[str, Machine] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    creating: int = 0
    most_creating: int = 0
    most_alive: int = 0

    def __post_init__(self):
        self.gate, self.kept = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self._ids = itertools.count(1)

    @property
    def capabilities(self):
        return Capabilities(
            users=True,
            network_policy=True,
            resources=frozenset(),
            snapshot=False,
            reach=frozenset({"loopback"}),
            keep_alive_sec=self.keep_alive_sec,
        )

    async def trouble(self, what: str) -> object:
        self.calls[what] = self.calls.get(what, 0) + 1
        for _ in range(self.steps):
            await asyncio.sleep(0)
        fault = self.faults[what].pop(0) if self.faults.get(what) else None
        if isinstance(fault, BaseException):
            raise fault
        return fault

    async def create(self, spec, *, labels, lifetime_sec):
        self.creating += 1
        self.most_creating = max(self.most_creating, self.creating)
        try:
            await self.gate.wait()
            fault = await self.trouble("create")
            machine = Machine(self, f"m{next(self._ids)}", spec, dict(labels), lifetime_sec)
            self.machines[machine.id] = machine
            self.most_alive = max(self.most_alive, len(self.machines))
            if isinstance(fault, tuple):
                raise fault[1]
            return machine
        finally:
            self.creating -= 1

    async def list(self, labels):
        await self.trouble("list")
        return [
            SandboxInfo(m.id, m.labels, m.created_at)
            for m in self.machines.values()
            if labels.items() <= m.labels.items()
        ]

    async def delete(self, sandbox_id):
        try:
            await self.trouble("delete")
        except SandboxGone:
            self.machines.pop(sandbox_id, None)
            raise
        self.machines.pop(sandbox_id, None)

    async def attach(self, sandbox_id):
        return self.machines[sandbox_id]

    async def probe(self): ...

    async def aclose(self): ...

    async def prepare(self, image, resources, layers):
        await self.trouble("prepare")
        return "+".join([image or "", *(layer.name for layer in layers)])


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Let others run until it holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


def stuck() -> Provider:
    """``SWE_SANDBOX=provider:stuck``: has a machine of the run ``dead`` that cannot be deleted, and one that can."""
    provider = Provider({"delete": [SandboxError("500: [try] again")]})
    for name in ("m1", "m2"):
        labels = {"agentrl-run": "dead", "agentrl-rollout": "i0-g0-r0"}
        provider.machines[name] = Machine(provider, name, None, labels, 60.0, time.time() - 7200)
    return provider


def slow() -> Provider:
    """``SWE_SANDBOX=provider:slow``: neither a deletion nor its own end ever comes to an end."""
    provider = Provider()

    async def never(*deleting):
        if deleting:
            print("deleting", *deleting, flush=True)
        await asyncio.Event().wait()

    provider.delete = provider.aclose = never
    return provider
