"""One running local sandbox, as the host holds it."""

from __future__ import annotations

import asyncio
import errno
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agentrl.api import (
    ExecResult,
    FileDenied,
    FileError,
    FileIsDirectory,
    FileMissing,
    SandboxError,
    SandboxGone,
    SandboxRefused,
)
from agentrl_local.boot import HANG_UP_SEC, Boot
from agentrl_local.channel import Answer, Channel
from agentrl_local.records import remove

GRACE_SEC = 30.0  # for the exec server to end a command's tree and answer
CANCEL_SEC = 10.0
_FILE_ERRORS: dict[int, type[FileError]] = {
    errno.ENOENT: FileMissing,
    errno.EISDIR: FileIsDirectory,
    **dict.fromkeys(
        (
            errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.EFBIG, errno.ENAMETOOLONG, errno.ENXIO,
            errno.EINVAL, errno.EBUSY, errno.EEXIST,
        ),
        FileDenied,
    ),
}  # fmt: skip


class LocalSandbox:
    """Implements :class:`agentrl.api.Sandbox` over the exec server's channel."""

    def __init__(self, sandbox_id: str, boot: Boot, channel: Channel, on_end: Callable[[str], object]) -> None:
        self._id, self._boot, self._channel = sandbox_id, boot, channel
        self._on_end = on_end
        self._harvest: Callable[[Path], None] | None = None
        self._end = asyncio.create_task(self._attend())

    @property
    def id(self) -> str:
        """``local-…``; meaningful to the process that created it, and to ``list`` and ``delete`` everywhere."""
        return self._id

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
        """See :meth:`agentrl.api.Sandbox.exec`. There is one user, ``root`` without capabilities."""
        if user not in (None, "root", "0"):
            raise SandboxRefused(f"local sandboxes have one user, root, not {user!r}")
        what = {"script": command} if isinstance(command, str) else {"argv": list(command)}
        head = {
            **what, "do": "exec", "cwd": cwd, "env": dict(env or {}), "timeout_sec": timeout_sec,
            "has_stdin": stdin is not None, "marker": secrets.token_hex(8),
        }  # fmt: skip
        answer = await self._ask(head, stdin or b"", timeout_sec + GRACE_SEC, cancel=True)
        if "error" in answer.head:
            raise SandboxError(f"the command could not be started: {answer.head['error']}")
        out, err = answer.payloads
        return ExecResult(
            answer.head["exit_code"], out, err, answer.head["killed"] == "timeout", answer.head["truncated"]
        )

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """See :meth:`agentrl.api.Sandbox.write_file`. Atomic; a link at ``path`` is replaced, not followed."""
        await self._file({"do": "write", "path": path, "mode": mode}, data)

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """See :meth:`agentrl.api.Sandbox.read_file`."""
        return (await self._file({"do": "read", "path": path, "max_bytes": max_bytes})).payloads[0]

    def host_url(self, port: int) -> str:
        """The same loopback address as on the host: the port is carried through the wall."""
        return f"http://127.0.0.1:{port}"

    async def port_url(self, port: int) -> None:
        """The network of a sandbox is its own: there is no way in."""

    async def keep_alive(self) -> None:
        """It lives as long as we do."""

    async def close(self) -> None:
        """End every process inside and remove the files."""
        self._channel.close("the sandbox was closed")
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_UP_SEC):
                await self._boot.ended.wait()
        self._boot.kill()
        if self._end.done() and self._end.exception() is not None:
            self._end = asyncio.create_task(self._attend())  # another attempt at what could not be removed
        await asyncio.shield(self._end)

    async def close_into(self, harvest: Callable[[Path], None]) -> None:
        """Close, but call ``harvest`` with the folder of the dead sandbox's files before they are removed."""
        self._harvest = harvest
        await self.close()

    async def _attend(self) -> None:
        """Wait for the end, of whatever cause, and clean up after it."""
        await self._boot.ended.wait()
        self._channel.close("the sandbox is gone")
        try:
            if self._harvest is not None:
                await asyncio.to_thread(self._harvest, self._boot.state)
        finally:
            await asyncio.to_thread(remove, self._boot.state)
            self._on_end(self._id)

    async def _file(self, head: Mapping[str, object], data: bytes = b"") -> Answer:
        path = str(head["path"])
        if not path.startswith("/"):
            raise FileDenied(f"{path!r} is not an absolute path")
        answer = await self._ask(head, data, GRACE_SEC * 4)
        if "error" in answer.head:
            kind = _FILE_ERRORS.get(answer.head["errno"], SandboxError)
            raise kind(f"{path}: {answer.head['error']}")
        return answer

    async def _ask(
        self, head: Mapping[str, object], payload: bytes, guard_sec: float, *, cancel: bool = False
    ) -> Answer:
        number, future = self._channel.send(head, payload)
        try:
            await asyncio.wait([future], timeout=guard_sec)
        except asyncio.CancelledError:
            if cancel and not future.done():
                with suppress(SandboxGone):
                    self._channel.send({"do": "cancel", "target": number})
                    await asyncio.wait([future], timeout=CANCEL_SEC)
            raise
        if not future.done():
            raise SandboxError(f"the exec server of {self._id} has not answered for {guard_sec:.0f} s")
        return future.result()
