"""Images on the engine: whether they are there, and how they get there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiodocker

from agentrl.api import ImageUnavailable, SandboxError, SandboxTransient
from agentrl_docker.engine import speaking
from agentrl_docker.layers import BAKED

PULL_SEC = 1800.0


class Images:
    """The images of one engine. ``pulls``: whether one that is missing is fetched."""

    def __init__(self, client: aiodocker.Docker, *, pulls: bool) -> None:
        self._client, self._pulls = client, pulls
        self._pulling: dict[str, asyncio.Task[None]] = {}

    async def find(self, image: str) -> Mapping[str, Any] | None:
        """What the engine knows of ``image`` (``Id``, ``Config``, …), or None when it does not have it. Raises: SandboxError."""
        with speaking(f"looking for image {image}"):
            try:
                return await self._client.images.inspect(image)
            except aiodocker.DockerError as error:
                if error.status == 404:
                    return None
                raise

    async def provide(self, image: str) -> Mapping[str, Any]:
        """Like :meth:`find`, with a pull first if that is allowed. Raises: ImageUnavailable, SandboxError."""
        found = await self.find(image)
        if found is None:
            if image.startswith(f"{BAKED}:"):
                raise ImageUnavailable(f"{image}, which was baked here, was removed from the engine")
            if not self._pulls:
                raise ImageUnavailable(
                    f"the Docker engine has no image {image}: `docker pull {image}`, or set SWE_DOCKER_PULL=missing"
                )
            await self._pull(image)
            found = await self.find(image)
        if found is None:
            raise ImageUnavailable(f"{image} was pulled, but the engine does not have it for this machine")
        return found

    async def aclose(self) -> None:
        """End pulls that are under way."""
        for task in self._pulling.values():
            task.cancel()
        await asyncio.gather(*self._pulling.values(), return_exceptions=True)

    async def _pull(self, image: str) -> None:
        """One pull of an image at a time; a cancelled caller does not spoil it for the others."""
        if image not in self._pulling or self._pulling[image].done():
            self._pulling[image] = asyncio.create_task(self._fetch(image))
        await asyncio.shield(self._pulling[image])

    async def _fetch(self, image: str) -> None:
        if await self.find(image) is not None:  # another pull has ended since our caller looked
            return
        with speaking(f"pulling {image}"):
            async with asyncio.timeout(PULL_SEC):
                try:
                    await self._client.images.pull(image)
                except aiodocker.DockerError as error:
                    raise refusal(image, error) from error


def refusal(image: str, error: aiodocker.DockerError) -> SandboxError:
    """What a failed pull means. The engine gives 500 for most, so its words have to decide."""
    words = error.message.lower()
    final = ("not found", "denied", "unauthorized", "unknown", "invalid reference", "no matching manifest")
    if any(word in words for word in final):
        return ImageUnavailable(f"{image} cannot be pulled: {error.message}")
    return SandboxTransient(f"{image} was not pulled: {error.message}")
