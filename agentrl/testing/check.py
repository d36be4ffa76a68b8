"""What a check is, when it applies, and how it is judged: by :mod:`agentrl.cli.check` and by tests alike."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentrl.sandbox import SandboxBackend
from agentrl.testing.rig import machine, run
from agentrl.types import Capabilities

LIMIT_SEC = 900.0
CLEAN_UP_SEC = 60.0

_CAPABILITIES: Mapping[str, Callable[[Capabilities], bool]] = {
    "users": lambda can: can.users,
    "network_policy": lambda can: can.network_policy,
    "reach": lambda can: bool(can.reach & {"loopback", "bridge"}),
    "tunnel": lambda can: "tunnel" in can.reach,
    "cpus": lambda can: "cpus" in can.resources,
    "memory_mb": lambda can: "memory_mb" in can.resources,
    "pids": lambda can: "pids" in can.resources,
}


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: ``run`` raises AssertionError with what it saw instead.

    ``needs``: words that must all hold, capabilities (``users``, ``network_policy``, ``reach``, ``tunnel``, and ``cpus``,
    ``memory_mb``, ``pids`` for limits) and names of programs in the default image. ``known``: why it is known to fail, or empty.
    """

    name: str
    needs: tuple[str, ...]
    run: Callable[[SandboxBackend], Awaitable[None]]
    known: str = ""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs among ``needs``."""
        return tuple(word for word in self.needs if word not in _CAPABILITIES)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``known``: it failed, as its ``Check.known`` says. ``error``: what it raised, whatever that was."""

    check: str
    outcome: Literal["passed", "failed", "skipped", "known"]
    reason: str = ""
    seconds: float = 0.0
    error: BaseException | None = None


def checks(*functions: Callable[[SandboxBackend], Awaitable[None]], needs: str = "") -> tuple[Check, ...]:
    """A check for each function, named like it. ``needs``: words separated by spaces."""
    return tuple(Check(function.__name__, tuple(needs.split()), function) for function in functions)


def with_known(all_checks: Sequence[Check], known: Mapping[str, str]) -> tuple[Check, ...]:
    """The checks, those in ``known`` (name → reason) marked as failing. Raises: KeyError for a name that no check has."""
    names = {check.name for check in all_checks}
    for name in known:
        if name not in names:
            raise KeyError(f"there is no check {name}")
    return tuple(replace(check, known=known.get(check.name, "")) for check in all_checks)


def applies(check: Check, capabilities: Capabilities) -> bool:
    """Whether a backend with ``capabilities`` must pass ``check``, given the programs that it needs."""
    return all(_CAPABILITIES[word](capabilities) for word in check.needs if word in _CAPABILITIES)


async def lacking(check: Check, backend: SandboxBackend) -> str:
    """Why ``check`` does not apply, or empty. Programs are looked for in a machine."""
    absent = [word for word in check.needs if word in _CAPABILITIES and not _CAPABILITIES[word](backend.capabilities)]
    if absent:
        return f"not declared: {', '.join(absent)}"
    if not check.programs:
        return ""
    async with machine(backend) as sandbox:
        words = " ".join(map(shlex.quote, check.programs))
        found = await run(sandbox, f"for p in {words}; do command -v $p >/dev/null || echo $p; done")
    absent = found.stdout.decode().split()
    return f"not in the image: {', '.join(absent)}" if absent else ""


async def judge(check: Check, backend: SandboxBackend, *, limit_sec: float = LIMIT_SEC) -> Verdict:
    """Run ``check`` if it applies. Whatever it raises is a failure, and so is no end within ``limit_sec``."""
    began = time.monotonic()
    task = asyncio.create_task(_run(check, backend))
    try:
        await asyncio.wait([task], timeout=limit_sec)
    finally:
        hung = task.cancel()
        await asyncio.wait([task], timeout=CLEAN_UP_SEC)
    seconds = time.monotonic() - began
    if hung or task.cancelled():
        return _judged(check, AssertionError(f"no end within {limit_sec:g} s"), seconds)
    if task.exception() is None and (reason := task.result()):
        return Verdict(check.name, "skipped", reason, seconds)
    return _judged(check, task.exception(), seconds)


async def _run(check: Check, backend: SandboxBackend) -> str:
    """Why it does not apply, or empty when it was run and passed."""
    reason = await lacking(check, backend)
    if not reason:
        await check.run(backend)
    return reason


def _judged(check: Check, error: BaseException | None, seconds: float) -> Verdict:
    if error is not None:
        if check.known:
            return Verdict(check.name, "known", check.known, seconds, error)
        words = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        return Verdict(check.name, "failed", words, seconds, error)
    if check.known:
        error = AssertionError(f"it passes, although it is known to fail ({check.known}): take it off the list")
        return Verdict(check.name, "failed", str(error), seconds, error)
    return Verdict(check.name, "passed", seconds=seconds)
