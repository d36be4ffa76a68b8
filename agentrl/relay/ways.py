"""Which way an agent in a sandbox takes to the gateway, and that way made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from agentrl.relay.relay import Relay
from agentrl.sandbox import Sandbox
from agentrl.settings import Settings
from agentrl.types import Capabilities

Way = Literal["direct", "public", "relay"]


def way_to_gateway(settings: Settings, can: Capabilities) -> Way:
    """``direct``: the backend leads to the host's loopback; ``public``: by name over the network; ``relay``: through a relay.

    What ``AGENTRL_REACH`` insists on is not questioned here (:func:`agentrl.rollout.checks.reach` does).
    """
    if settings.reach != "auto":
        return settings.reach
    if can.reach & {"loopback", "bridge"}:
        return "direct"
    return "public" if "public" in can.reach and settings.public_host else "relay"


@asynccontextmanager
async def base_url(
    sandbox: Sandbox, settings: Settings, can: Capabilities, *, port: int, root: str
) -> AsyncIterator[str]:
    """The gateway's address as the agent in ``sandbox`` must spell it, good for the block.

    ``port``: the gateway's; ``root``: the only path that a relay lets through. Raises: SandboxRefused (a relay finds no python3),
    SandboxError (also at the end: the relay broke for good, and nobody could call).
    """
    match way_to_gateway(settings, can):
        case "direct":
            yield sandbox.host_url(port)
        case "public":
            yield f"http://{settings.public_host}:{port}"
        case "relay":
            async with Relay(sandbox, port=port, root=root, tunnel="tunnel" in can.reach) as relay:
                yield relay.url
