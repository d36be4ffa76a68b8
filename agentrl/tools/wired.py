"""A whole sandbox over what a provider's SDK offers: short commands and files.

A backend implements :class:`Wire` for one machine, trying everything once; :class:`WiredSandbox` makes of it the contract of
:class:`~agentrl.sandbox.Sandbox`: exact bytes, real exit codes, at most one launch, ends noticed at once, trees killed.
Inside it needs a POSIX shell, bash and coreutils (or busybox), and a folder that can be written to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from agentrl.errors import SandboxRefused
from agentrl.tools.wired_command import Room, as_command, run_command
from agentrl.tools.wired_file import read_file, write_file
from agentrl.tools.wired_line import ANSWER_END, Line, Wire
from agentrl.types import ExecResult

__all__ = ["ANSWER_END", "Wire", "WiredSandbox"]


class WiredSandbox:
    """One machine over its :class:`Wire`: implements :class:`~agentrl.sandbox.Sandbox`. It owns all retries of the wire.

    ``close`` deletes the machine, tried once a call (not found is success). ``port_url`` None: there is no way in.
    ``keep_alive`` None: the machine needs none. ``users``: whether ``wire.run`` can be any user; then files are read and
    written, and trees killed, as root, otherwise as the default user. ``cwd``: where commands run that name no folder; None:
    where the wire runs them. The environment of the machine (``SandboxSpec.env``) is the provider's business.
    """

    def __init__(
        self,
        sandbox_id: str,
        wire: Wire,
        *,
        close: Callable[[], Awaitable[None]],
        host_url: Callable[[int], str],
        port_url: Callable[[int], Awaitable[tuple[str, Mapping[str, str]] | None]] | None = None,
        keep_alive: Callable[[], Awaitable[None]] | None = None,
        users: bool = True,
        cwd: str | None = None,
    ) -> None:
        self._line = Line(sandbox_id, wire, "root" if users else None)
        self._delete, self._host_url, self._port_url, self._refresh = close, host_url, port_url, keep_alive
        self._users, self._cwd = users, cwd
        self._rooms: dict[str | None, Room] = {}
        self._deleting, self._deleted = asyncio.Lock(), False

    @property
    def id(self) -> str:
        """The provider's name for it."""
        return self._line.sandbox_id

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
        """See :meth:`agentrl.sandbox.Sandbox.exec`. A launch is repeated until it arrives and runs once, ``idempotent`` or not."""
        if user is not None and not self._users:
            raise SandboxRefused(f"{self.id} has one user: commands cannot run as {user!r}")
        room = self._rooms.setdefault(user, Room(user))
        what = as_command(command, cwd or self._cwd, env, stdin)
        return await run_command(self._line, what, timeout_sec=timeout_sec, room=room)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """See :meth:`agentrl.sandbox.Sandbox.write_file`. Atomic; a link or FIFO at ``path`` is replaced, not followed."""
        await write_file(self._line, path, data, mode)

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """See :meth:`agentrl.sandbox.Sandbox.read_file`."""
        return await read_file(self._line, path, max_bytes)

    def host_url(self, port: int) -> str:
        """See :meth:`agentrl.sandbox.Sandbox.host_url`."""
        return self._host_url(port)

    async def port_url(self, port: int) -> tuple[str, Mapping[str, str]] | None:
        """See :meth:`agentrl.sandbox.Sandbox.port_url`."""
        self._line.check_open()
        port_url = self._port_url
        return await self._line.once(lambda: port_url(port)) if port_url else None

    async def keep_alive(self) -> None:
        """See :meth:`agentrl.sandbox.Sandbox.keep_alive`."""
        self._line.check_open()
        if self._refresh is not None:
            await self._line.once(self._refresh)

    async def close(self) -> None:
        """Delete the machine; from now on every call says that it is gone, those under way too."""
        self._line.close()
        async with self._deleting:
            if not self._deleted:
                await self._delete()
                self._deleted = True
