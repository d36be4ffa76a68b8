"""What a container is told to be: the body of the engine's create call.

Its first process is a sleep as long as the machine's lifetime, with what the image would start put aside. It cannot be
killed or stopped from inside, has no children, and ignores their ends, for which the kernel removes orphans at once.
That is why it takes the place of Docker's ``--init``: that one ends with its only child, so ``kill -9 -1`` by an agent, or our
own killing of all that an agent left, would end the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agentrl.api import Resources, SandboxSpec

MARK = "agentrl-sandbox"
DEFAULT_PIDS = 4096
_PERIOD_USEC = 100_000
# Only bash hands an ignored SIGCHLD on. An image without it has nothing that reaps, but runs.
_FIRST = """command -v bash >/dev/null 2>&1 && exec bash -c 'trap "" CHLD; exec sleep "$1"' sh "$1"; exec sleep "$1\""""


def container_config(
    spec: SandboxSpec,
    *,
    image: str,
    labels: Mapping[str, str],
    lifetime_sec: float,
    network: Mapping[str, Any],
    user: str,
) -> dict[str, Any]:
    """The whole body. ``network``: its part of ``HostConfig``; ``user`` empty: the image's."""
    return {
        "Image": image,
        "Entrypoint": ["sh", "-c", _FIRST, "sh", str(math.ceil(lifetime_sec))],
        "Cmd": [],
        "Env": [f"{key}={value}" for key, value in spec.env.items()],
        "Labels": {**labels, MARK: "1"},
        **({"User": user} if user else {}),
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            **_limits(spec.resources),
            **network,
            "AutoRemove": True,
            "LogConfig": {"Type": "none"},
        },
    }


def _limits(resources: Resources) -> dict[str, int]:
    """Swap is no way around a memory limit. A processor limit may be more than there are: then it does not bind."""
    limits = {"PidsLimit": resources.pids or DEFAULT_PIDS}
    if resources.memory_mb is not None:
        limits |= {"Memory": resources.memory_mb << 20, "MemorySwap": resources.memory_mb << 20}
    if resources.cpus is not None:
        limits |= {"CpuPeriod": _PERIOD_USEC, "CpuQuota": max(1000, int(resources.cpus * _PERIOD_USEC))}
    return limits
