"""One machine as :class:`agentrl.api.WiredSandbox` wants it: scripts and files, each tried once."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentrl.api import SandboxError, SandboxGone
from agentrl_e2b.errors import kind_of, translated
from agentrl_e2b.sdk import Sdk

if TYPE_CHECKING:
    from e2b import AsyncSandbox

LOOK_SEC = 30.0
GRACE_SEC = 5.0
_BYTES_PER_SEC = 500_000
_PATH = "AGENTRL_PATH"
# Commands begin in a login shell, which sets PATH anew. And not every user has a home, but E2B insists on a folder that is there.
_BEGIN = f"""[ -z "${{{_PATH}+x}}" ] || {{ PATH=${_PATH}; export PATH; unset {_PATH}; }}
cd 2>/dev/null
"""
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


class E2BWire:
    """Implements :class:`agentrl.api.Wire`. ``user``: who runs scripts that name nobody; None: the template's default."""

    def __init__(self, sdk: Sdk, box: AsyncSandbox, *, user: str | None) -> None:
        self._sdk, self._box, self._user = sdk, box, user

    async def run(
        self, script: str, *, env: Mapping[str, str], timeout_sec: float, user: str | None
    ) -> tuple[int, bytes]:
        """Run ``script`` to its end: exit code and stdout. Raises: see :class:`agentrl.api.Wire`."""
        from e2b import CommandExitException

        try:
            async with asyncio.timeout(timeout_sec + GRACE_SEC):
                result = await self._box.commands.run(
                    _BEGIN + script,
                    envs=shielded(env),
                    user=user or self._user,
                    cwd="/",
                    timeout=timeout_sec,
                    request_timeout=0,  # older SDKs do not keep to it, newer ones lose a task when they are cancelled
                )
        except CommandExitException as ended:
            return _exit_code(ended.exit_code, ended.error), (ended.stdout or "").encode()
        except Exception as error:
            await self._look(error)
            with translated(f"a command in {self._box.sandbox_id}", repeatable=False):
                raise
        return result.exit_code, (result.stdout or "").encode()

    async def put(self, path: str, data: bytes) -> None:
        """Write a file. Raises: see :class:`agentrl.api.Wire`."""
        with translated(f"writing {path} in {self._box.sandbox_id}", repeatable=True):
            await self._box.files.write(path, data, user=self._user, request_timeout=self._patience(len(data)))

    async def get(self, path: str) -> bytes:
        """Read a file. Raises: see :class:`agentrl.api.Wire`."""
        with translated(f"reading {path} in {self._box.sandbox_id}", repeatable=True):
            # In parts: a big file may take its time, one that stalls may not.
            read, patience = self._box.files.read, self._patience(0)
            idle = self._sdk.known(read, {"stream_idle_timeout": patience}) or {"request_timeout": 10 * patience}
            parts = await read(path, format="stream", user=self._user, **idle)
            return b"".join([part async for part in parts])

    def _patience(self, size: int) -> float:
        return float(self._sdk.options()["request_timeout"]) + size / _BYTES_PER_SEC

    async def _look(self, error: Exception) -> None:
        """A cut stream may mean a dead machine, and only the control plane knows. Raises: SandboxGone."""
        if kind_of(error) != "unknown":
            return
        try:
            await self._sdk.sandboxes.get_info(self._box.sandbox_id, **self._sdk.options(LOOK_SEC))
        except Exception as other:  # noqa: BLE001 -- as above; what it does not answer stays unknown
            if kind_of(other) == "gone":
                raise SandboxGone(f"{self._box.sandbox_id} died during a command") from error


def shielded(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` as E2B must be given it so that a command finds it."""
    return {_PATH if name == "PATH" else name: value for name, value in env.items()}


def _exit_code(code: int, error: str | None) -> int:
    """What a shell would say. Raises: SandboxError when nobody knows."""
    if code >= 0:
        return code
    named = re.fullmatch(r"signal: (.+)", error or "")
    for words, number in _SIGNALS.items():
        if named and words and words.lower() == named[1].split(" (")[0].lower():
            return 128 + number
    raise SandboxError(f"a command ended with {code} ({error}): its exit code is unknown")
