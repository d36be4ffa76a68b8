"""Makes E2B machines: templates, labels, lifetimes, and the search for those that nobody knows of."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from agentrl.api import (
    Capabilities,
    ImageUnavailable,
    Layer,
    Resources,
    SandboxError,
    SandboxGone,
    SandboxInfo,
    SandboxRefused,
    SandboxSpec,
    SandboxTransient,
    WiredSandbox,
)
from agentrl_e2b.errors import status_of, translated
from agentrl_e2b.machine import Machine
from agentrl_e2b.orphans import Orphans
from agentrl_e2b.sdk import Sdk
from agentrl_e2b.settings import E2BSettings
from agentrl_e2b.templates import PREFIX, Recipe, Templates
from agentrl_e2b.warmth import Warmth
from agentrl_e2b.wire import shielded

if TYPE_CHECKING:
    from e2b import AsyncSandbox

TOKEN_LABEL = "agentrl-create"
DEADLINE_LABEL = "agentrl-deadline"
BOOT_ATTEMPTS = 5
BOOT_PAUSE_SEC = 0.5
KEEP_SEC = 60
"""A machine that is attached to gets at least so long."""


class E2BBackend:
    """Implements :class:`agentrl.api.SandboxBackend` over the ``e2b`` SDK, trying everything once.

    ``image``: a template of the account, a container image (built into a template on first use), or what :meth:`prepare` made.
    """

    def __init__(self, settings: E2BSettings) -> None:
        self._settings, self._sdk = settings, Sdk(settings)
        self._templates = Templates(self._sdk, build_sec=settings.build_sec)
        self._warmth = Warmth()
        self._orphans = Orphans(self.list, self.delete)

    @property
    def capabilities(self) -> Capabilities:
        """CPUs and memory belong to the template; a machine lives for a while, and longer when it is told to."""
        key = self._settings.api_key.get_secret_value()
        account = f"{self._sdk.api} {hashlib.sha256(key.encode()).hexdigest()[:16]}"
        routed = bool(self._settings.image_metadata_key)
        return Capabilities(
            users=True,
            network_policy=True,
            resources=frozenset() if routed else frozenset({"cpus", "memory_mb"}),
            snapshot=not routed,
            reach=frozenset({"public", "tunnel"}),
            keep_alive_sec=self._settings.longest_life_sec / 3,
            account=account,
        )

    async def create(self, spec: SandboxSpec, *, labels: Mapping[str, str], lifetime_sec: float) -> WiredSandbox:
        """See :meth:`agentrl.api.SandboxBackend.create`."""
        template = await self._template(spec)
        token = secrets.token_hex(16)
        deadline = time.time() + lifetime_sec
        metadata = {**labels, TOKEN_LABEL: token, DEADLINE_LABEL: f"{deadline:.0f}"}
        if self._settings.image_metadata_key and spec.image:
            metadata[self._settings.image_metadata_key] = spec.image
        making = asyncio.ensure_future(self._make(template, spec, metadata, lifetime_sec))
        try:
            box = await asyncio.shield(making)
        except asyncio.CancelledError:
            await self._orphans.remove(making, {TOKEN_LABEL: token})
            raise
        except SandboxError as error:
            await self._orphans.remove(making, {TOKEN_LABEL: token})
            if status_of(error.__cause__ or error) == 404:
                self._templates.forget(template)
                raise ImageUnavailable(f"there is no template {template!r} ({error})") from error
            raise
        try:
            return await self._booted(box, deadline)
        except BaseException:
            await self._orphans.remove(making, {TOKEN_LABEL: token})
            raise

    async def attach(self, sandbox_id: str) -> WiredSandbox:
        """See :meth:`agentrl.api.SandboxBackend.attach`. It keeps its lifetime, but for a minute at least."""
        with translated(f"attaching to {sandbox_id}", repeatable=True):
            sandboxes, options = self._sdk.sandboxes, self._sdk.options()
            info = await sandboxes.get_info(sandbox_id, **options)
            box = await sandboxes.connect(sandbox_id, timeout=KEEP_SEC, **options)
        deadline = float((info.metadata or {}).get(DEADLINE_LABEL) or info.end_at.timestamp())
        return self._machine(box, deadline).sandbox()

    async def list(self, labels: Mapping[str, str]) -> Sequence[SandboxInfo]:
        """See :meth:`agentrl.api.SandboxBackend.list`."""
        from e2b import SandboxQuery

        found: list[SandboxInfo] = []
        with translated("listing machines", repeatable=True):
            pages = self._sdk.sandboxes.list(query=SandboxQuery(metadata=dict(labels)), **self._sdk.options())
            while pages.has_next:
                async with self._warmth.request():
                    page = await pages.next_items()
                found += [SandboxInfo(box.sandbox_id, box.metadata or {}, box.started_at.timestamp()) for box in page]
        # A gateway may not know the filter.
        return [info for info in found if labels.items() <= info.labels.items()]

    async def delete(self, sandbox_id: str) -> None:
        """See :meth:`agentrl.api.SandboxBackend.delete`."""
        with suppress(SandboxGone), translated(f"deleting {sandbox_id}", repeatable=True):
            async with self._warmth.request():
                await self._sdk.sandboxes.kill(sandbox_id, **self._sdk.options())

    async def prepare(self, image: str | None, resources: Resources, layers: Sequence[Layer]) -> str | None:
        """See :meth:`agentrl.api.SandboxBackend.prepare`. The layers become a template of the account."""
        if not layers:
            return image
        if self._settings.image_metadata_key:
            raise SandboxRefused(
                "this gateway runs images as they are (SWE_SANDBOX_IMAGE_METADATA_KEY): nothing can be baked into them; "
                "put the agent into the image, or unset the variable to build templates"
            )
        return await self._templates.provide(Recipe(image, self._settings.template, resources, tuple(layers)))

    async def aclose(self) -> None:
        """End searches and builds; machines live on."""
        await self._orphans.aclose()
        await self._templates.aclose()

    async def probe(self) -> str | None:
        """Ask for one page of machines: is there a key, does E2B take it?"""
        if self._sdk.missing_key is not None:
            return self._sdk.missing_key
        try:
            await self.list({"agentrl-probe": "1"})
        except SandboxError as error:
            return f"E2B at {self._sdk.api} does not answer as it should: {error}"
        return None

    # -------------------------------------------------------------------------------------------------- the parts

    async def _template(self, spec: SandboxSpec) -> str:
        """The template to start. Raises: ImageUnavailable, SandboxError."""
        image, limits = spec.image, (spec.resources.cpus, spec.resources.memory_mb)
        if self._settings.image_metadata_key:
            return self._settings.template
        if image is not None and image.startswith(PREFIX):
            return image
        if limits == (None, None) and (image is None or await self._templates.exists(image)):
            return image or self._settings.template
        return await self._templates.provide(Recipe(image, self._settings.template, spec.resources, ()))

    async def _make(
        self, template: str, spec: SandboxSpec, metadata: Mapping[str, str], lifetime_sec: float
    ) -> AsyncSandbox:
        create = self._sdk.sandboxes.create
        wanted = {"idempotency_key": f"agentrl-{metadata[TOKEN_LABEL]}", "secure": True}
        with translated(f"creating a machine of template {template}", repeatable=True):
            async with self._warmth.request():
                return await create(
                    template=template,
                    timeout=ceil(min(lifetime_sec, self._settings.longest_life_sec)),
                    metadata=dict(metadata),
                    envs=shielded(spec.env),
                    network=self._network(spec),
                    **self._sdk.known(create, wanted),
                    **self._sdk.options(self._settings.create_sec),
                )

    def _network(self, spec: SandboxSpec) -> Any:
        """Ports inside are for whoever has the token; outside is what ``spec`` allows."""
        policy: dict[str, Any] = {"allow_public_traffic": False}
        if not spec.network:
            policy["deny_out"] = ["0.0.0.0/0"]
            if spec.reach and self._settings.public_host:
                policy["allow_out"] = [self._settings.public_host]
        return policy

    async def _booted(self, box: AsyncSandbox, deadline: float) -> WiredSandbox:
        """Wait until it answers: now and then the first connection to a new machine dies. Raises: SandboxTransient."""
        for attempt in range(BOOT_ATTEMPTS):
            await asyncio.sleep(BOOT_PAUSE_SEC * attempt)
            with suppress(SandboxTransient, SandboxGone), translated(f"waiting for {box.sandbox_id}", repeatable=True):
                async with self._warmth.request():
                    if await box.is_running(request_timeout=self._settings.request_sec):
                        return self._machine(box, deadline).sandbox()
        raise SandboxTransient(f"{box.sandbox_id} was created but does not answer")

    def _machine(self, box: AsyncSandbox, deadline: float) -> Machine:
        return Machine(self._sdk, self._settings, box, deadline=deadline, delete=self.delete)
