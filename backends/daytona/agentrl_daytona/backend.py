"""Makes, finds and deletes Daytona machines: :class:`agentrl.api.SandboxBackend` over the official SDK."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

from daytona import AsyncDaytona, ListSandboxesQuery

from agentrl.api import (
    Capabilities,
    Layer,
    Resources,
    SandboxError,
    SandboxGone,
    SandboxInfo,
    SandboxSpec,
    SettingsError,
)
from agentrl_daytona.client import Client, missing_credentials
from agentrl_daytona.machines import HAS_TTL, SNAPSHOT, Order, boot, fresh_name
from agentrl_daytona.sandbox import DaytonaSandbox, deleted, found
from agentrl_daytona.settings import DaytonaSettings
from agentrl_daytona.snapshots import Snapshots

ALIVE = "started"
DEAD = ("destroyed", "destroying")


class DaytonaBackend:
    """Implements :class:`agentrl.api.SandboxBackend`. ``image``: an image, or ``snapshot:NAME``.

    A machine is deleted by Daytona when its lifetime is over (whole minutes), and when nobody has refreshed it for
    ``SWE_DAYTONA_AUTO_STOP_MIN``. SDKs that know no time to live leave the first to a timer of ours and the second to Daytona.
    """

    def __init__(self, settings: DaytonaSettings) -> None:
        self._settings = settings
        self._client = Client(settings)
        self._snapshots = Snapshots(self._client)

    @property
    def capabilities(self) -> Capabilities:
        """One user. The gateway is reached through the relay (``tunnel``), or directly under a public name."""
        return Capabilities(
            users=False,
            network_policy=True,
            resources=frozenset({"cpus", "memory_mb", "disk_mb"}),
            snapshot=True,
            reach=frozenset({"tunnel", "public"}),
            keep_alive_sec=self._settings.auto_stop_min * 60 / 3,
            account=self._account(),
        )

    async def create(self, spec: SandboxSpec, *, labels: Mapping[str, str], lifetime_sec: float) -> DaytonaSandbox:
        """See :meth:`agentrl.api.SandboxBackend.create`."""
        image = self._image(spec.image)
        if self._settings.snapshot_images and image is not None and not image.startswith(SNAPSHOT):
            image = await self._snapshots.plain(image, spec.resources)
        order = Order(
            name=fresh_name(),
            image=image,
            resources=spec.resources,
            labels=labels,
            env=spec.env,
            network=spec.network,
            allowed_host=self._settings.public_host if spec.reach else "",
            user=self._settings.user,
            lifetime_sec=lifetime_sec,
            auto_stop_min=self._settings.auto_stop_min,
        )
        return await self._client.owner.run(self._boot(order), undo=lambda sandbox: sandbox.close())

    async def attach(self, sandbox_id: str) -> DaytonaSandbox:
        """See :meth:`agentrl.api.SandboxBackend.attach`. A machine that was stopped is gone: it would be deleted next."""
        machine = await self._client.ask(lambda sdk: sdk.get(sandbox_id), f"find {sandbox_id}")
        if _value(machine.state) != ALIVE:
            raise SandboxGone(f"{sandbox_id} is {_value(machine.state)}")
        return DaytonaSandbox(self._client, machine)

    async def list(self, labels: Mapping[str, str]) -> Sequence[SandboxInfo]:
        """See :meth:`agentrl.api.SandboxBackend.list`. Stopped machines count: they hold disk quota."""

        async def look(sdk: AsyncDaytona) -> list[SandboxInfo]:
            query = ListSandboxesQuery(labels=dict(labels))
            return [
                SandboxInfo(machine.id, dict(machine.labels), _timestamp(machine.created_at))
                async for machine in sdk.list(query)
                if labels.items() <= machine.labels.items() and _value(machine.state) not in DEAD
            ]

        return await self._client.ask(look, "list machines")

    async def delete(self, sandbox_id: str) -> None:
        """See :meth:`agentrl.api.SandboxBackend.delete`."""

        async def delete(sdk: AsyncDaytona) -> None:
            machine = await found(sdk, sandbox_id)
            if machine is not None and _value(machine.state) not in DEAD:
                await deleted(machine)

        await self._client.ask(delete, f"delete {sandbox_id}")

    async def prepare(self, image: str | None, resources: Resources, layers: Sequence[Layer]) -> str | None:
        """See :meth:`agentrl.api.SandboxBackend.prepare`. One snapshot for all layers together, resources included."""
        return await self._snapshots.layered(self._image(image), resources, layers) if layers else image

    async def aclose(self) -> None:
        """See :meth:`agentrl.api.SandboxBackend.aclose`."""
        if self._client.owner.started:
            await self._snapshots.aclose()
            await self._client.aclose()

    async def probe(self) -> str | None:
        """Ask the API for a list that is empty, which needs the address and the key."""
        if (problem := missing_credentials(self._settings)) is not None:
            return problem
        try:
            await self.list({"agentrl-probe": "nobody"})
        except (SandboxError, SettingsError) as error:
            return f"Daytona at {self._settings.api_url}: {error}"
        return None

    async def _boot(self, order: Order) -> DaytonaSandbox:
        sandbox = DaytonaSandbox(self._client, await boot(self._client, order))
        if not HAS_TTL:
            sandbox.end_after(order.lifetime_sec)
        return sandbox

    def _account(self) -> str:
        """Whose quota it is, without telling the key."""
        who = self._settings.organization_id or self._settings.api_key.get_secret_value()
        return f"{self._settings.api_url} {hashlib.sha256(who.encode()).hexdigest()[:12]}"

    def _image(self, image: str | None) -> str | None:
        return image or self._settings.image or None


def _value(state: object) -> str:
    return str(getattr(state, "value", state))


def _timestamp(created_at: str | None) -> float:
    """Unix seconds of an ISO date, 0 when the provider does not say."""
    return datetime.fromisoformat(created_at).timestamp() if created_at else 0.0
