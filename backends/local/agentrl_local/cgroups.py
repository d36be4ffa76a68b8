"""Limits by control groups, where this process may make them: version 1 and version 2.

A sandbox's groups lie below our own, so that its limits nest in ours. Where none can be made, the backend falls back to
process limits and declares less.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentrl.api import Resources

PERIOD_USEC = 100_000
EMPTY_SEC = 10.0
_SWAP = ("memory.memsw.limit_in_bytes", "memory.swap.max")  # absent where the kernel does not account for swap
_FIELD = {"memory": "memory_mb", "pids": "pids", "cpu": "cpus"}


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Controller (``memory``, ``pids``, ``cpu``) → the folder below which groups can be made."""

    parents: Mapping[str, Path]
    version: int

    @property
    def resources(self) -> frozenset[str]:
        """The fields of :class:`Resources` that are enforced."""
        return frozenset(_FIELD[name] for name in self.parents)


def find_cgroups() -> Cgroups:
    """What is writable here; possibly nothing."""
    paths = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    parents: dict[str, Path] = {}
    unified: Path | None = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup":
            for name in set(options.strip().split(",")) & set(_FIELD):
                parents.setdefault(name, _below(mount, root, paths.get(name, "/")))
        elif kind == "cgroup2":
            unified = _below(mount, root, paths.get("", "/"))
    parents = {name: path for name, path in parents.items() if os.access(path, os.W_OK)}
    if parents or unified is None:
        return Cgroups(parents, 1)
    return Cgroups(dict.fromkeys(_delegated(unified), unified), 2)


def _below(mount: str, root: str, path: str) -> Path:
    """Our own group under ``mount``, which shows the tree from ``root`` on."""
    own = Path(mount, os.path.relpath(path, root)) if path.startswith(root) else Path(mount)
    return own if own.is_dir() else Path(mount)


def _delegated(group: Path) -> set[str]:
    """Controllers that children of a version 2 group get, after asking for those we want."""
    control = group / "cgroup.subtree_control"
    if not os.access(group, os.W_OK) or not control.exists():
        return set()
    for name in _FIELD:
        with suppress(OSError):
            control.write_text(f"+{name}")
    return set(control.read_text().split()) & set(_FIELD)


def plan_groups(cgroups: Cgroups, name: str, resources: Resources) -> Mapping[str, Path]:
    """Controller → the group to make for one sandbox; only for what is limited."""
    wanted = {c: p for c, p in cgroups.parents.items() if getattr(resources, _FIELD[c]) is not None}
    return {controller: parent / name for controller, parent in wanted.items()}


def make_groups(groups: Mapping[str, Path], version: int, resources: Resources) -> None:
    """Make and limit planned groups. Raises: OSError."""
    for controller, group in groups.items():
        group.mkdir(exist_ok=True)
        for file, value in _limits(controller, resources, version):
            if (group / file).exists() or file not in _SWAP:
                (group / file).write_text(value)


def _limits(controller: str, resources: Resources, version: int) -> Sequence[tuple[str, str]]:
    if controller == "pids":
        return [("pids.max", str(resources.pids))]
    if controller == "memory":
        size = str((resources.memory_mb or 0) << 20)
        if version == 2:
            return [("memory.max", size), ("memory.swap.max", "0")]
        return [("memory.limit_in_bytes", size), ("memory.memsw.limit_in_bytes", size)]
    quota = str(int((resources.cpus or 0) * PERIOD_USEC))
    if version == 2:
        return [("cpu.max", f"{quota} {PERIOD_USEC}")]
    return [("cpu.cfs_period_us", str(PERIOD_USEC)), ("cpu.cfs_quota_us", quota)]


def remove_groups(groups: Sequence[Path]) -> None:
    """Remove the groups of a dead sandbox, once its last processes have left them."""
    deadline = time.monotonic() + EMPTY_SEC
    for group in groups:
        while group.exists():
            try:
                group.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.01)
