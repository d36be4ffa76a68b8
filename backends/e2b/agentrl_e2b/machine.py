"""What belongs to one running machine besides its commands and files: lifetime, ports, end."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING

from agentrl.api import WiredSandbox
from agentrl_e2b.errors import translated
from agentrl_e2b.sdk import Sdk
from agentrl_e2b.settings import E2BSettings
from agentrl_e2b.wire import E2BWire

if TYPE_CHECKING:
    from e2b import AsyncSandbox


class Machine:
    """One machine. ``deadline``: Unix seconds at which it must be dead, whatever happens."""

    def __init__(
        self,
        sdk: Sdk,
        settings: E2BSettings,
        box: AsyncSandbox,
        *,
        deadline: float,
        delete: Callable[[str], Awaitable[None]],
    ) -> None:
        self._sdk, self._settings, self._box = sdk, settings, box
        self._deadline, self._delete = deadline, delete

    def sandbox(self) -> WiredSandbox:
        """The whole contract over it."""
        wire = E2BWire(self._sdk, self._box, user=self._settings.user or None)
        return WiredSandbox(
            self._box.sandbox_id,
            wire,
            close=self.close,
            host_url=self.host_url,
            port_url=self.port_url,
            keep_alive=self.keep_alive,
            users=True,
            cwd=self._settings.cwd or None,
        )

    async def close(self) -> None:
        """Delete it. Raises: SandboxError."""
        await self._delete(self._box.sandbox_id)

    def host_url(self, port: int) -> str:
        """Under the host's public name, or where a relay inside listens."""
        return f"http://{self._settings.public_host or '127.0.0.1'}:{port}"

    async def port_url(self, port: int) -> tuple[str, Mapping[str, str]]:
        """Through E2B's proxy, which asks for the machine's token; a gateway of one's own is told the way by headers."""
        token = self._box.traffic_access_token
        headers = {"e2b-traffic-access-token": str(token)} if token else {}
        if self._settings.sandbox_url:
            route = {"E2b-Sandbox-Id": self._box.sandbox_id, "E2b-Sandbox-Port": str(port)}
            return self._settings.sandbox_url.rstrip("/"), {**headers, **route}
        return f"https://{self._box.get_host(port)}", headers

    async def keep_alive(self) -> None:
        """Book it for another while, not beyond its deadline. Raises: SandboxTransient, SandboxError."""
        left = self._deadline - time.time()
        if left > 0:
            with translated(f"keeping {self._box.sandbox_id}", repeatable=True):
                await self._sdk.sandboxes.set_timeout(
                    self._box.sandbox_id, ceil(min(left, self._settings.longest_life_sec)), **self._sdk.options()
                )
