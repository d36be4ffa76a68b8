"""Images of our own: layers baked onto an image, or a plain image, kept as a Daytona snapshot once per digest.

A snapshot's name says what is in it, so whoever finds the name taken waits for it instead of building. The SDK's declarative
``Image`` is not used: its files travel through an object store that self-hosted installations may lack, and each of them
would be on the client's disk and in a Dockerfile. A machine is booted, filled and captured instead, which both ends of the
SDK's range can do.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from daytona import AsyncDaytona, CreateSnapshotParams

from agentrl.api import ImageUnavailable, Layer, Resources, SandboxError, SandboxTransient, write_layer
from agentrl_daytona.client import Client
from agentrl_daytona.errors import SDK_ERRORS, conflicts, not_found
from agentrl_daytona.machines import OURS, SNAPSHOT, Order, boot, sdk_resources
from agentrl_daytona.sandbox import DaytonaSandbox

logger = logging.getLogger(__name__)

BUILD_SEC = 1800.0
POLL_SEC = 2.0
READY, BROKEN = "active", ("error", "build_failed")


class Snapshots:
    """Builds and finds them. Within one process each digest is built by one task, however many ask."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._building: dict[str, asyncio.Task[str]] = {}

    async def layered(self, image: str | None, resources: Resources, layers: Sequence[Layer]) -> str:
        """``snapshot:NAME`` with ``layers`` on ``image``. Raises: like :meth:`agentrl.api.SandboxBackend.prepare`."""
        name = digest_name(image, resources, layers)
        return await self._client.owner.run(self._once(name, self._build_layers(name, image, resources, layers)))

    async def plain(self, image: str, resources: Resources) -> str:
        """``snapshot:NAME`` of ``image`` itself. Raises: as above."""
        name = digest_name(image, resources, ())
        return await self._client.owner.run(self._once(name, self._build_plain(name, image, resources)))

    async def aclose(self) -> None:
        """End builds under way and delete their machines."""
        await self._client.owner.run(self._end())

    async def _end(self) -> None:
        tasks = list(self._building.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _once(self, name: str, build: Coroutine[Any, Any, None]) -> str:
        """On the owner loop. The build goes on when this caller is cancelled: others may wait for it."""
        task = self._building.get(name)
        if task is None:
            task = self._building[name] = asyncio.create_task(self._ready(name, build), name=name)
            task.add_done_callback(self._built)
        else:
            build.close()
        return await asyncio.shield(task)

    def _built(self, task: asyncio.Task[str]) -> None:
        del self._building[task.get_name()]
        if not task.cancelled() and task.exception() is not None:
            logger.info("building %s failed: %s", task.get_name(), task.exception())  # nobody may be left to hear it

    async def _ready(self, name: str, build: Coroutine[Any, Any, None]) -> str:
        try:
            if not await self._exists(name):
                await build
                await self._wait(name)
        finally:
            build.close()
        return SNAPSHOT + name

    # ----------------------------------------------------------------------------------------------------- building

    async def _build_layers(self, name: str, image: str | None, resources: Resources, layers: Sequence[Layer]) -> None:
        """Bake in a machine whose name only one builder can have, on whichever host."""
        order = Order(
            name=f"{name}-build",
            image=image,
            resources=resources,
            labels={"agentrl-layer": layers[-1].name},
            env={},
            network=True,
            allowed_host="",
            user="root",
            lifetime_sec=BUILD_SEC,
            auto_stop_min=self._client.settings.auto_stop_min,
        )
        sandbox = await self._claimed(name, order)
        if sandbox is None:
            return
        try:
            if not await self._exists(name):  # somebody may have baked it between our last look and our claim
                for layer in layers:
                    await _bake(sandbox, layer)
                await sandbox.capture(name, within_sec=BUILD_SEC)
        finally:
            await asyncio.shield(_closed(sandbox))

    async def _claimed(self, name: str, order: Order) -> DaytonaSandbox | None:
        """The machine to bake in, or None when somebody else has baked meanwhile."""
        deadline = time.monotonic() + BUILD_SEC
        while True:
            try:
                return DaytonaSandbox(self._client, await boot(self._client, order))
            except SandboxTransient as error:
                taken = error.__cause__ is not None and conflicts(error.__cause__)
                if not taken or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(POLL_SEC)
            if await self._exists(name):
                return None

    async def _build_plain(self, name: str, image: str, resources: Resources) -> None:
        params = CreateSnapshotParams(name=name, image=image, resources=sdk_resources(resources))

        async def create(sdk: AsyncDaytona) -> None:
            try:
                await sdk.snapshot.create(params, timeout=BUILD_SEC)
            except SDK_ERRORS as error:
                if not conflicts(error):
                    raise

        await self._client.ask(create, f"make a snapshot of {image}", within_sec=BUILD_SEC, missing=ImageUnavailable)

    # ------------------------------------------------------------------------------------------------------ waiting

    async def _wait(self, name: str) -> None:
        """Until it is usable: a capture is reported as done before it is, and even though it failed. Raises: SandboxError."""
        deadline = time.monotonic() + BUILD_SEC
        while (state := await self._seen(name)) != READY:
            if state in BROKEN:
                await self._remove(name)
                raise SandboxError(f"snapshot {name} ended as {state}")
            if time.monotonic() > deadline:
                raise SandboxError(f"snapshot {name} was made and is still {state or 'missing'}")
            await asyncio.sleep(POLL_SEC)

    async def _exists(self, name: str) -> bool:
        """Whether it can be used now; one that somebody builds is waited for, one that is broken is removed."""
        deadline = time.monotonic() + BUILD_SEC
        while (state := await self._state(name)) not in (None, READY):
            if state in BROKEN:
                await self._remove(name)
                return False
            if time.monotonic() > deadline:
                raise SandboxError(f"snapshot {name} has been {state} for {BUILD_SEC:.0f} s: delete it")
            await asyncio.sleep(POLL_SEC)
        return state == READY

    async def _seen(self, name: str) -> str | None:
        """Its state, if anybody answers: what was baked for minutes is not given up for one bad answer."""
        try:
            return await self._state(name)
        except SandboxTransient as error:
            return f"unknown ({error})"

    async def _state(self, name: str) -> str | None:
        async def look(sdk: AsyncDaytona) -> str | None:
            try:
                snapshot = await sdk.snapshot.get(name)
                if snapshot.state == "inactive":
                    snapshot = await sdk.snapshot.activate(snapshot)
            except SDK_ERRORS as error:
                if not_found(error):
                    return None
                raise
            return str(getattr(snapshot.state, "value", snapshot.state))

        return await self._client.ask(look, f"look for snapshot {name}")

    async def _remove(self, name: str) -> None:
        async def remove(sdk: AsyncDaytona) -> None:
            try:
                await sdk.snapshot.delete(await sdk.snapshot.get(name))
            except SDK_ERRORS as error:
                if not not_found(error):
                    raise

        await self._client.ask(remove, f"remove the broken snapshot {name}")


def digest_name(image: str | None, resources: Resources, layers: Sequence[Layer]) -> str:
    """The name of the snapshot of exactly this; resources belong to a snapshot for Daytona, so they count."""
    limits = sdk_resources(resources)
    words = [image, [limits.cpu, limits.memory, limits.disk] if limits else None, [layer.digest for layer in layers]]
    return OURS + hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]


async def _bake(sandbox: DaytonaSandbox, layer: Layer) -> None:
    await write_layer(sandbox, layer)
    for command in layer.commands:
        result = await sandbox.exec(command, timeout_sec=BUILD_SEC, cwd="/")
        if not result.ok:
            tail = (result.stdout + result.stderr)[-2000:].decode(errors="replace")
            raise SandboxError(f"layer {layer.name}: {command!r} ended with {result.exit_code}: {tail}")


async def _closed(sandbox: DaytonaSandbox) -> None:
    """Delete the builder; its lifetime does it too, and what was built or went wrong matters more."""
    try:
        await sandbox.close()
    except SandboxError as error:
        logger.warning("the builder %s could not be deleted, its lifetime ends it: %s", sandbox.id, error)
