"""How a container reaches the gateway: the four ways, and which of them hold here.

``none`` is the strictest: the container has nothing but its own loopback, where we listen in its stead and carry what
arrives to the gateway. Where we may enter its network, we do the same for containers that are on Docker's bridge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from aiodocker.containers import DockerContainer

from agentrl.api import CarriedPort, SandboxRefused, SandboxSpec
from agentrl_docker.engine import is_local, speaking
from agentrl_docker.namespace import listen_inside, may_enter
from agentrl_docker.settings import DockerSettings

HOST_NAME = "host.docker.internal"
Reach = Literal["loopback", "bridge", "public", "tunnel"]


class Network:
    """The network of one backend's containers."""

    def __init__(self, settings: DockerSettings) -> None:
        self._enters = is_local(settings.host) and may_enter()
        self._local = is_local(settings.host)
        auto = "none" if self._enters else "bridge"
        self.mode = auto if settings.network == "auto" else settings.network

    @property
    def closed(self) -> bool:
        """Whether a container that did not ask for a network has none."""
        return self.mode == "none"

    @property
    def reach(self) -> frozenset[Reach]:
        """For :class:`agentrl.api.Capabilities`."""
        outside: frozenset[Reach] = frozenset() if self.closed else frozenset({"public"})
        if self._enters or (self.mode == "host" and self._local):
            return outside | {"loopback"}
        return outside | ({"bridge"} if self.mode == "bridge" and self._local else set())

    def config(self, spec: SandboxSpec) -> Mapping[str, Any]:
        """The part of a container's ``HostConfig``."""
        mode = "bridge" if self.closed and spec.network else self.mode
        names = [f"{HOST_NAME}:host-gateway"] if mode == "bridge" and not self._enters else []
        return {"NetworkMode": mode, "ExtraHosts": names}

    def url(self, port: int) -> str:
        """See :meth:`agentrl.api.Sandbox.host_url`. Raises: SandboxRefused."""
        if "loopback" in self.reach:
            return f"http://127.0.0.1:{port}"
        if "bridge" in self.reach:
            return f"http://{HOST_NAME}:{port}"
        raise SandboxRefused(f"no container reaches port {port} of this machine: set AGENTRL_REACH=relay")

    async def carry(self, container: DockerContainer, ports: Sequence[int]) -> list[CarriedPort]:
        """Listen inside ``container``, if that is the way, until what is returned is closed. Raises: SandboxRefused, SandboxError."""
        if not ports or not self._enters or self.mode == "host":
            return []
        with speaking("looking for the container's network"):
            about = await container.show()
        listeners = listen_inside(about["State"]["Pid"], about["Id"], ports)
        carried = [CarriedPort(port) for port in ports]
        for port, listener in zip(carried, listeners, strict=True):
            await port.start(listener)
        return carried
