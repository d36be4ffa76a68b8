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
# Not every user has a home; E2B insists on a folder that is there.
_GO_HOME = "cd 2>/dev/null\n"
# Commands begin in a login shell, which sets PATH anew.
_KEEP_PATH = f"PATH=${_PATH}; export PATH; unset {_PATH}\n"
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


class E2BWire:
    """Implements :class:`agentrl.api.Wire`. ``user``: who runs scripts that name nobody; None: the template's default.

    ``env``: the machine's own, of which only PATH matters here: E2B sets the rest.
    """

    def __init__(self, sdk: Sdk, box: AsyncSandbox, *, user: str | None, env: Mapping[str, str]) -> None:
        self._sdk, self._box, self._user = sdk, box, user
        self._path = {"PATH": env["PATH"]} if "PATH" in env else {}

    async def run(
        self, script: str, *, env: Mapping[str, str], timeout_sec: float, user: str | None
    ) -> tuple[int, bytes]:
        """Run ``script`` to its end: exit code and stdout. Raises: see :class:`agentrl.api.Wire`."""
        from e2b import CommandExitException

        merged = {**self._path, **env}
        if "PATH" in merged:
            merged[_PATH] = merged.pop("PATH")
            script = _KEEP_PATH + script
        script = _GO_HOME + script
        try:
            async with asyncio.timeout(timeout_sec + GRACE_SEC):
                result = await self._box.commands.run(
                    script,
                    envs=merged,
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
            patience = self._patience(0) * 10
            return bytes(await self._box.files.read(path, format="bytes", user=self._user, request_timeout=patience))

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


def _exit_code(code: int, error: str | None) -> int:
    """What a shell would say. Raises: SandboxError when nobody knows."""
    if code >= 0:
        return code
    named = re.fullmatch(r"signal: (.+)", error or "")
    for words, number in _SIGNALS.items():
        if named and words and words.lower() == named[1].split(" (")[0].lower():
            return 128 + number
    raise SandboxError(f"a command ended with {code} ({error}): its exit code is unknown")
