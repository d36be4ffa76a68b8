"""Makes sandboxes of containers: create, find again, delete, and bake layers into images.

Over aiodocker: it is asyncio from end to end, small and maintained, while the official SDK blocks and would hold a thread for
each command under way. Any engine from Docker 20.10 on (API 1.41) will do.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiodocker
from aiodocker.containers import DockerContainer

from agentrl.api import (
    Capabilities,
    CarriedPort,
    ImageUnavailable,
    Layer,
    Resources,
    Sandbox,
    SandboxError,
    SandboxGone,
    SandboxInfo,
    SandboxRefused,
    SandboxSpec,
    WiredSandbox,
    write_layer,
)
from agentrl_docker.containers import OURS, Containers
from agentrl_docker.engine import connect, disconnect, speaking, trouble
from agentrl_docker.images import Images
from agentrl_docker.layers import BAKED, LABEL, config_below, name_of, only_builder
from agentrl_docker.machine import MARK, container_config
from agentrl_docker.network import Network
from agentrl_docker.settings import DockerSettings
from agentrl_docker.wire import DockerWire

BUILD_SEC = 1800.0
ANSWER_SEC = 60.0
ROOT = "0"


@dataclass(frozen=True, slots=True)
class _Engine:
    """A connection and what is done over it."""

    client: aiodocker.Docker
    images: Images
    containers: Containers


class DockerBackend:
    """Implements :class:`agentrl.api.SandboxBackend` on one engine. A machine's id is its container's name.

    A machine lives on when we die, until its lifetime is over, and any process may attach to it. What it reaches of the
    host is carried by the process that made it.
    """

    def __init__(self, settings: DockerSettings) -> None:
        self._settings = settings
        self._network = Network(settings)
        self._opened: _Engine | None = None
        self._clearing: set[asyncio.Task[None]] = set()

    @property
    def capabilities(self) -> Capabilities:
        """Users and limits are the engine's; the network depends on where it runs and on who we are."""
        return Capabilities(
            users=True,
            network_policy=self._network.closed,
            resources=frozenset({"cpus", "memory_mb", "pids"}),
            snapshot=True,
            reach=self._network.reach,
            account=self._settings.host,
        )

    async def create(self, spec: SandboxSpec, *, labels: Mapping[str, str], lifetime_sec: float) -> Sandbox:
        """See :meth:`agentrl.api.SandboxBackend.create`."""
        sandbox, _ = await self._boot(spec, labels, lifetime_sec, user=self._settings.user)
        return sandbox

    async def attach(self, sandbox_id: str) -> Sandbox:
        """See :meth:`agentrl.api.SandboxBackend.attach`. Only to containers that a backend made."""
        if OURS.fullmatch(sandbox_id):
            with speaking(f"looking for {sandbox_id}"):
                container = await self._engine().client.containers.get(sandbox_id)
            if container["State"]["Running"]:
                return self._sandbox(container, sandbox_id, container["Config"])
        raise SandboxGone(f"{sandbox_id} is no running container of ours")

    async def list(self, labels: Mapping[str, str]) -> Sequence[SandboxInfo]:
        """See :meth:`agentrl.api.SandboxBackend.list`. Also containers that never started."""
        wanted = [MARK, *(f"{key}={value}" for key, value in labels.items())]
        with speaking("listing containers"):
            found = await self._engine().client.containers.list(all=True, filters=json.dumps({"label": wanted}))
        return [_info(container) for container in found]

    async def delete(self, sandbox_id: str) -> None:
        """See :meth:`agentrl.api.SandboxBackend.delete`. A name that no backend gives is not found."""
        if OURS.fullmatch(sandbox_id):
            await self._engine().containers.remove(sandbox_id)

    async def prepare(self, image: str | None, resources: Resources, layers: Sequence[Layer]) -> str | None:
        """See :meth:`agentrl.api.SandboxBackend.prepare`. Each layer is an image of its own on the engine."""
        images = self._engine().images
        for layer in layers:
            below = self._image(image)
            image = name_of(await images.provide(below), layer)
            if await images.find(image) is None:
                async with only_builder(image):
                    if await images.find(image) is None:
                        await self._bake(below, resources, layer, image)
        return image

    async def aclose(self) -> None:
        """See :meth:`agentrl.api.SandboxBackend.aclose`."""
        while self._clearing:
            await asyncio.wait(self._clearing)
        if self._opened is not None:
            engine, self._opened = self._opened, None
            await engine.images.aclose()
            await disconnect(engine.client)

    async def probe(self) -> str | None:
        """See :meth:`agentrl.api.SandboxBackend.probe`. No container is started."""
        try:
            problem = await trouble(self._engine().client, self._settings.host)
            if problem is None and self._settings.image:
                await self._engine().images.provide(self._settings.image)
        except SandboxError as error:
            return str(error)
        return problem

    # -------------------------------------------------------------------------------------------------- the parts

    def _engine(self) -> _Engine:
        """Opened by the first call, inside its loop. Raises: SandboxRefused."""
        if self._opened is None:
            client = connect(self._settings)
            images = Images(client, pulls=self._settings.pull == "missing")
            self._opened = _Engine(client, images, Containers(client, answer_sec=self._settings.timeout_sec))
        return self._opened

    def _image(self, image: str | None) -> str:
        if image and image != "host":
            return image
        if not self._settings.image:
            raise ImageUnavailable("the task names no container image: set SWE_DOCKER_IMAGE to one that it can run in")
        return self._settings.image

    def _sandbox(
        self,
        container: DockerContainer,
        name: str,
        config: Mapping[str, Any],
        *,
        carried: Sequence[CarriedPort] = (),
        commands_as: str = "",
    ) -> Sandbox:
        containers = self._engine().containers

        async def close() -> None:
            for port in carried:
                port.close()
            await containers.remove(name)

        wire = DockerWire(container, name, user=commands_as)
        folder = config.get("WorkingDir") or "/"
        return WiredSandbox(name, wire, close=close, host_url=self._network.url, users=True, cwd=folder)

    async def _boot(
        self,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_sec: float,
        *,
        user: str = "",
        commands_as: str = "",
    ) -> tuple[Sandbox, DockerContainer]:
        engine, image = self._engine(), self._image(spec.image)
        config = (await engine.images.provide(image))["Config"] or {}
        network = self._network.config(spec)
        body = container_config(spec, image=image, labels=labels, lifetime_sec=lifetime_sec, network=network, user=user)
        name = f"agentrl-{secrets.token_hex(8)}"
        starting = asyncio.create_task(engine.containers.start(name, body))
        carried: list[CarriedPort] = []
        try:
            container = await asyncio.shield(starting)
            carried += await self._network.carry(container, spec.reach)
            sandbox = self._sandbox(container, name, config, carried=carried, commands_as=commands_as)
            await _greet(sandbox, image)
        except BaseException:
            for port in carried:
                port.close()
            await self._clear(starting, name)
            raise
        return sandbox, container

    async def _clear(self, starting: asyncio.Task[DockerContainer], name: str) -> None:
        """Goes on if we are cancelled once more; :meth:`aclose` waits for it."""
        clearing = asyncio.create_task(self._engine().containers.clear(starting, name))
        self._clearing.add(clearing)
        clearing.add_done_callback(self._clearing.discard)
        await asyncio.shield(clearing)

    async def _bake(self, below: str, resources: Resources, layer: Layer, name: str) -> None:
        spec = SandboxSpec(image=below, resources=resources, network=True)
        sandbox, container = await self._boot(spec, {LABEL: layer.name}, BUILD_SEC, commands_as=ROOT)
        try:
            await write_layer(sandbox, layer)
            for command in layer.commands:
                result = await sandbox.exec(command, timeout_sec=BUILD_SEC, cwd="/")
                if not result.ok:
                    tail = (result.stdout + result.stderr)[-2000:].decode(errors="replace")
                    raise SandboxError(f"layer {layer.name}: {command!r} ended with {result.exit_code}: {tail}")
            config = config_below(await self._engine().images.provide(below), layer)
            with speaking(f"keeping layer {layer.name}"):
                async with asyncio.timeout(BUILD_SEC):
                    await container.commit(repository=BAKED, tag=name.removeprefix(f"{BAKED}:"), config=config)
        finally:
            await sandbox.close()


async def _greet(sandbox: Sandbox, image: str) -> None:
    """Prove that it runs commands."""
    try:
        answer = await sandbox.exec(["true"], cwd="/", timeout_sec=ANSWER_SEC)
    except SandboxGone as error:
        raise SandboxRefused(f"a container of {image} ended at once: the image needs sh and sleep") from error
    if not answer.ok:
        said = answer.stderr[-300:].decode(errors="replace")
        raise SandboxRefused(f"a container of {image} runs no commands: {said}")


def _info(container: DockerContainer) -> SandboxInfo:
    labels = {key: value for key, value in container["Labels"].items() if key not in (MARK, LABEL)}
    return SandboxInfo(container["Names"][0].removeprefix("/"), labels, float(container["Created"]))
