"""A backend whose machines carry one more label, so that whoever made them finds exactly these again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.types import Capabilities, Layer, Resources, SandboxInfo, SandboxSpec

TAG = "agentrl-check"


class Tagged:
    """Implements :class:`~agentrl.sandbox.SandboxBackend` over ``backend``: ``tag`` marks what is created through it."""

    def __init__(self, backend: SandboxBackend, tag: str) -> None:
        self._backend, self._tag = backend, tag

    async def leftovers(self) -> Sequence[SandboxInfo]:
        """Machines created through this object that still exist."""
        return await self._backend.list({TAG: self._tag})

    @property
    def capabilities(self) -> Capabilities:
        """The backend's."""
        return self._backend.capabilities

    async def create(self, spec: SandboxSpec, *, labels: Mapping[str, str], lifetime_sec: float) -> Sandbox:
        """With the tag among the labels."""
        return await self._backend.create(spec, labels={**labels, TAG: self._tag}, lifetime_sec=lifetime_sec)

    async def attach(self, sandbox_id: str) -> Sandbox:
        """The backend's."""
        return await self._backend.attach(sandbox_id)

    async def list(self, labels: Mapping[str, str]) -> Sequence[SandboxInfo]:
        """The backend's: also machines that others made."""
        return await self._backend.list(labels)

    async def delete(self, sandbox_id: str) -> None:
        """The backend's."""
        await self._backend.delete(sandbox_id)

    async def prepare(self, image: str | None, resources: Resources, layers: Sequence[Layer]) -> str | None:
        """The backend's."""
        return await self._backend.prepare(image, resources, layers)

    async def aclose(self) -> None:
        """The backend's."""
        await self._backend.aclose()

    async def probe(self) -> str | None:
        """The backend's."""
        return await self._backend.probe()
