"""Containers of an engine: started so that none is forgotten, and deleted for good."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

import aiodocker
from aiodocker.containers import DockerContainer

from agentrl.api import ImageUnavailable, SandboxError, SandboxRefused, SandboxTransient
from agentrl_docker.engine import NO_ANSWER, meaning, speaking

logger = logging.getLogger(__name__)

OURS = re.compile(r"agentrl-[0-9a-f]{16}")
_LOOKS_SEC = (0.0, 1.0, 3.0)  # waits before looking for a container whose creation was never confirmed
_REMOVAL_POLLS, _POLL_SEC = 200, 0.05


class Containers:
    """Start and remove, on the engine of ``client``, which has ``answer_sec`` for each answer."""

    def __init__(self, client: aiodocker.Docker, *, answer_sec: float) -> None:
        self._client, self._answer_sec = client, answer_sec

    async def start(self, name: str, body: Mapping[str, Any]) -> DockerContainer:
        """Create and start. When it fails :meth:`remove` what may be there; then asking again is safe.

        Raises: ImageUnavailable, SandboxRefused, SandboxTransient.
        """
        what = f"starting {name} from {body['Image']}"
        try:
            container = await self._client.containers.create(dict(body), name=name)
            await container.start()
        except aiodocker.DockerError as error:
            raise _no_start(error, what) from error
        except (TimeoutError, OSError) as error:
            raise SandboxTransient(f"{what}: the Docker engine did not answer in time") from error
        return container

    async def clear(self, starting: asyncio.Task[DockerContainer], name: str) -> None:
        """Delete what ``starting`` made, or may still be making: an engine goes on with a call that nobody waits for.

        Raises nothing: whoever calls has an error of its own already.
        """
        await asyncio.wait([starting])
        uncertain = starting.cancelled() or isinstance(starting.exception(), SandboxTransient)
        for delay in _LOOKS_SEC if uncertain else _LOOKS_SEC[:1]:
            await asyncio.sleep(delay)
            try:
                await self.remove(name)
            except SandboxError as error:
                logger.warning("%s may be left until its lifetime is over, or `agentrl gc`: %s", name, error)

    async def remove(self, name: str) -> None:
        """Kill and delete with its volumes; not found is success. Raises: SandboxError."""
        container = self._client.containers.container(name)
        with speaking(f"deleting {name}"):
            for _ in range(_REMOVAL_POLLS):
                try:
                    async with asyncio.timeout(self._answer_sec):  # the client itself would wait for ever
                        await container.delete(force=True, v=True)
                except aiodocker.DockerError as error:
                    if error.status == 404:
                        return
                    if error.status != 409:  # somebody else is at it
                        raise
                else:
                    return
                await asyncio.sleep(_POLL_SEC)
        raise SandboxTransient(f"{name} is being removed, and does not go")


def _no_start(error: aiodocker.DockerError, what: str) -> SandboxError:
    words = error.message.lower()
    if error.status == NO_ANSWER:
        return SandboxTransient(f"{what}: {error.message}")
    if "executable file not found" in words or '"sh"' in words:
        return SandboxRefused(f"{what}: commands need sh and bash, and the image has no sh: {error.message}")
    if error.status == 404 and "image" in words:
        return ImageUnavailable(f"{what}: it was removed meanwhile: {error.message}")
    return meaning(error, what)
