"""Boots Daytona machines: what to ask for, and how to leave nothing behind when it fails half-way."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from daytona import (
    AsyncDaytona,
    AsyncSandbox,
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    DaytonaError,
)
from daytona import Resources as SdkResources

from agentrl.api import ImageUnavailable, Resources, SandboxRefused
from agentrl_daytona.client import Client
from agentrl_daytona.errors import SDK_ERRORS, refused_for_sure
from agentrl_daytona.sandbox import deleted, found

logger = logging.getLogger(__name__)

HAS_TTL = "ttl_minutes" in CreateSandboxFromImageParams.model_fields
SNAPSHOT = "snapshot:"
OURS = "agentrl-"
CREATION_LABEL = "agentrl-creation"
LOOKS = (0.0, 0.5, 2.0)
CLEANUP_SEC = 60.0
SLACK_SEC = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """One machine to boot. ``image``: an image, ``snapshot:NAME``, or None for the organisation's default snapshot.
    ``allowed_host``: what may be reached without ``network``, or empty."""

    name: str
    image: str | None
    resources: Resources
    labels: Mapping[str, str]
    env: Mapping[str, str]
    network: bool
    allowed_host: str
    user: str
    lifetime_sec: float
    auto_stop_min: int


def fresh_name() -> str:
    """A name for a machine that nobody else uses: a creation that was lost is found by it."""
    return OURS + secrets.token_hex(10)


async def boot(client: Client, order: Order) -> AsyncSandbox:
    """A started machine, on the owner loop. Cancelled or failed, it leaves none. Raises: like :meth:`agentrl.api.SandboxBackend.create`."""
    limit = client.settings.boot_timeout_sec
    creation = secrets.token_hex(8)
    params = parameters(replace(order, labels={**order.labels, CREATION_LABEL: creation}))

    async def create(sdk: AsyncDaytona) -> AsyncSandbox:
        try:
            return await sdk.create(params, timeout=limit)
        except SDK_ERRORS as error:
            reason = None if refused_for_sure(error) else await discard(sdk, order.name, creation)
            if reason:
                raise DaytonaError(f"{error}: {reason}") from error
            raise
        except asyncio.CancelledError:
            await discard(sdk, order.name, creation)
            raise

    return await client.ask(
        create,
        f"create a machine of {order.image or 'the default snapshot'}",
        within_sec=limit + SLACK_SEC + CLEANUP_SEC,
        missing=ImageUnavailable,
    )


def parameters(order: Order) -> CreateSandboxFromImageParams | CreateSandboxFromSnapshotParams:
    """What to ask the provider for. An SDK that knows no time to live ignores it: see :data:`HAS_TTL`. Raises: SandboxRefused."""
    general: dict[str, Any] = {
        "name": order.name,
        "os_user": order.user or None,
        "env_vars": dict(order.env),
        "labels": dict(order.labels),
        "ephemeral": True,
        "auto_stop_interval": min(order.auto_stop_min, minutes(order.lifetime_sec)),
        "ttl_minutes": minutes(order.lifetime_sec),
        **_network(order),
    }
    limits = sdk_resources(order.resources)
    if order.image is not None and not order.image.startswith(SNAPSHOT):
        return CreateSandboxFromImageParams(image=order.image, resources=limits, **general)
    if limits is not None and not (order.image or "").startswith(SNAPSHOT + OURS):
        raise SandboxRefused(
            f"{order.image or 'the default snapshot'} has resources of its own: name an image (SWE_DAYTONA_IMAGE for tasks "
            "without one), or ask for no resources"
        )
    name = order.image.removeprefix(SNAPSHOT) if order.image else None
    return CreateSandboxFromSnapshotParams(snapshot=name, **general)


def _network(order: Order) -> dict[str, Any]:
    """All, one host, or nothing. The provider's lists are of addresses or of names."""
    if order.network or not order.allowed_host:
        return {"network_block_all": not order.network}
    try:
        address = ipaddress.ip_network(order.allowed_host)
    except ValueError:
        return {"domain_allow_list": order.allowed_host}
    return {"network_allow_list": str(address)}


def minutes(seconds: float) -> int:
    """Whole minutes, the provider's unit, at least one."""
    return max(1, math.ceil(seconds / 60))


def sdk_resources(resources: Resources) -> SdkResources | None:
    """In the provider's units, rounded up: cores and GiB. Processes cannot be limited. None: nothing is asked for."""
    if resources.cpus is resources.memory_mb is resources.disk_mb is None:
        return None
    return SdkResources(
        cpu=_rounded(resources.cpus), memory=_rounded(resources.memory_mb, 1024), disk=_rounded(resources.disk_mb, 1024)
    )


def _rounded(amount: float | None, unit: int = 1) -> int | None:
    return None if amount is None else max(1, math.ceil(amount / unit))


async def discard(sdk: AsyncDaytona, name: str, creation: str) -> str | None:
    """Delete what a creation left, if it left something; returns why that machine failed, if it says so.

    It may show late, so we look again; and a machine of that name may be somebody else's, so its label must be ours. This
    needs no id, which older SDKs do not tell when they time out. Never raises: the machine's lifetime ends it too.
    """
    trouble: BaseException | None = None
    for pause in LOOKS:
        try:
            async with asyncio.timeout(CLEANUP_SEC / len(LOOKS)):
                await asyncio.sleep(pause)
                machine = await found(sdk, name)
                if machine is not None and machine.labels.get(CREATION_LABEL) == creation:
                    await deleted(machine)
                    return machine.error_reason
        except SDK_ERRORS as error:
            trouble = error
    if trouble is not None:
        logger.warning("whether machine %s was created is unknown, its lifetime ends it: %s", name, trouble)
    return None
