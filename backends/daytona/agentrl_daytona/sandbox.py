"""A Daytona machine as a sandbox: :class:`agentrl.api.WiredSandbox` on the owner loop, for callers on any loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from daytona import AsyncDaytona, AsyncSandbox

from agentrl.api import ExecResult, SandboxError, SandboxRefused, WiredSandbox
from agentrl_daytona.client import Client
from agentrl_daytona.errors import SDK_ERRORS, conflicts, not_found
from agentrl_daytona.wire import DaytonaWire

logger = logging.getLogger(__name__)

TOKEN_HEADER = "X-Daytona-Preview-Token"
DELETE_SEC = 60.0
NO_WARNING = {"X-Daytona-Skip-Preview-Warning": "true"}


class DaytonaSandbox:
    """Implements :class:`agentrl.api.Sandbox`. Everything happens on the owner loop, where the SDK's client lives."""

    def __init__(self, client: Client, machine: AsyncSandbox) -> None:
        self.id = machine.id
        self._client, self._machine = client, machine
        self._ending: asyncio.Task[None] | None = None
        self._wired = WiredSandbox(
            machine.id,
            DaytonaWire(client, machine),
            close=self._delete,
            host_url=self.host_url,
            port_url=self._preview,
            keep_alive=self._refresh,
            users=False,
        )

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_sec: float,
        user: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        idempotent: bool = False,
    ) -> ExecResult:
        """See :meth:`agentrl.api.Sandbox.exec`. There is one user."""
        work = self._wired.exec(
            command, timeout_sec=timeout_sec, user=user, cwd=cwd, env=env, stdin=stdin, idempotent=idempotent
        )
        return await self._client.owner.run(work)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """See :meth:`agentrl.api.Sandbox.write_file`."""
        await self._client.owner.run(self._wired.write_file(path, data, mode=mode))

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """See :meth:`agentrl.api.Sandbox.read_file`."""
        return await self._client.owner.run(self._wired.read_file(path, max_bytes=max_bytes))

    def host_url(self, port: int) -> str:
        """At ``ADAPTER_PUBLIC_HOST``. Raises: SandboxRefused without one: there is no way to this host's loopback."""
        if not self._client.settings.public_host:
            raise SandboxRefused(
                f"port {port} of this host cannot be reached from a Daytona machine: set AGENTRL_REACH=relay, or "
                "ADAPTER_PUBLIC_HOST to a name of this host that the internet knows"
            )
        return f"http://{self._client.settings.public_host}:{port}"

    async def port_url(self, port: int) -> tuple[str, Mapping[str, str]] | None:
        """The preview link of the port, with the token that it asks for."""
        return await self._client.owner.run(self._wired.port_url(port))

    async def keep_alive(self) -> None:
        """Only requests count as activity for Daytona, running processes do not."""
        await self._client.owner.run(self._wired.keep_alive())

    async def close(self) -> None:
        """See :meth:`agentrl.api.Sandbox.close`."""
        await self._client.owner.run(self._close())

    # -------------------------------------------------------------------------------------------------- for backends

    async def capture(self, name: str, *, within_sec: float) -> None:
        """Keep its files as snapshot ``name``; a name that is taken is success. Raises: SandboxError."""

        async def create(_: AsyncDaytona) -> None:
            # The older name is all that the oldest SDKs have.
            capture = getattr(self._machine, "create_snapshot", None) or self._machine._experimental_create_snapshot
            try:
                await capture(name, timeout=within_sec)
            except SDK_ERRORS as error:
                if not conflicts(error):
                    raise

        await self._client.ask(create, f"capture {self.id} as {name}", within_sec=within_sec)

    def end_after(self, lifetime_sec: float) -> None:
        """Delete it then, for as long as we live: for SDKs that cannot leave this to the provider. On the owner loop."""
        self._ending = asyncio.create_task(self._end(lifetime_sec))

    # ------------------------------------------------------------------------------------------------------ the parts

    async def _end(self, lifetime_sec: float) -> None:
        await asyncio.sleep(lifetime_sec)
        try:
            await self._wired.close()
        except SandboxError as error:
            logger.warning("%s could not be deleted at the end of its life: %s", self.id, error)

    async def _close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        await self._wired.close()

    async def _delete(self) -> None:
        await self._client.ask(lambda _: deleted(self._machine), f"delete {self.id}")

    async def _refresh(self) -> None:
        await self._client.ask(lambda _: self._machine.refresh_activity(), f"keep {self.id} alive")

    async def _preview(self, port: int) -> tuple[str, Mapping[str, str]]:
        link = await self._client.ask(
            lambda _: self._machine.get_preview_link(port), f"ask for port {port} of {self.id}"
        )
        return link.url, {TOKEN_HEADER: link.token, **NO_WARNING}


async def deleted(machine: AsyncSandbox) -> None:
    """Delete a machine, on the owner loop; one that is gone already is success. Raises: what the SDK raises."""
    try:
        await machine.delete(timeout=DELETE_SEC)
    except SDK_ERRORS as error:
        if not not_found(error):
            raise


async def found(sdk: AsyncDaytona, name: str) -> AsyncSandbox | None:
    """The machine of that id or name, on the owner loop, or None. Raises: what the SDK raises."""
    try:
        return await sdk.get(name)
    except SDK_ERRORS as error:
        if not_found(error):
            return None
        raise
