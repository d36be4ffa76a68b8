"""One Daytona machine as :class:`agentrl.api.Wire`: scripts through ``process.exec``, files through ``fs``.

Sessions are not used: they hang on ``exit`` and take some bytes of the output for marks of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from daytona import AsyncSandbox

from agentrl.api import FileMissing, SandboxError, SandboxGone
from agentrl_daytona.client import Ask, Client

T = TypeVar("T")

BYTES_PER_SEC = 1 << 20
DOWNLOAD_REQUESTS = 5
LOST = -1
SCRIPT = "AGENTRL_SCRIPT"


class DaytonaWire:
    """Implements :class:`agentrl.api.Wire`."""

    def __init__(self, client: Client, machine: AsyncSandbox) -> None:
        self._client, self._machine = client, machine

    async def run(
        self, script: str, *, env: Mapping[str, str], timeout_sec: float, user: str | None
    ) -> tuple[int, bytes]:
        """See :meth:`agentrl.api.Wire.run`. The provider hands the text to a shell's stdin, which reads it byte by byte, so that
        most of it comes as a variable; it mixes both streams. ``user`` is always None, for there is one."""
        command = f'exec sh -c "${SCRIPT}" </dev/null 2>/dev/null'
        limit = math.ceil(timeout_sec)
        answer = await self._ask(
            lambda _: self._machine.process.exec(command, env={**env, SCRIPT: script}, timeout=limit),
            "run a command",
            within_sec=limit,
            repeatable=False,
        )
        if not isinstance(answer.exit_code, int) or answer.exit_code <= LOST:
            raise SandboxError(f"a command in {self._machine.id} ended without exit code: {str(answer.result)[:200]}")
        return answer.exit_code, answer.result.encode()

    async def put(self, path: str, data: bytes) -> None:
        """See :meth:`agentrl.api.Wire.put`."""
        limit = self._client.settings.request_sec + len(data) / BYTES_PER_SEC
        await self._ask(
            lambda _: self._machine.fs.upload_file(data, path, math.ceil(limit)), "write a file", within_sec=limit
        )

    async def get(self, path: str) -> bytes:
        """See :meth:`agentrl.api.Wire.get`. Raises also: FileMissing."""
        limit = DOWNLOAD_REQUESTS * self._client.settings.request_sec
        try:
            data = await self._ask(
                lambda _: self._machine.fs.download_file(path, math.ceil(limit)),
                "read a file",
                within_sec=limit,
                missing=FileMissing,
            )
        except FileMissing:
            await self._ask(lambda sdk: sdk.get(self._machine.id), "look for the machine", within_sec=limit)
            raise
        if data is None:
            raise SandboxError(f"{path} was not sent")
        return data

    async def _ask(
        self,
        ask: Ask[T],
        doing: str,
        *,
        within_sec: float,
        repeatable: bool = True,
        missing: type[SandboxError] = SandboxGone,
    ) -> T:
        said = f"{doing} in {self._machine.id}"
        return await self._client.ask(ask, said, within_sec=within_sec, repeatable=repeatable, missing=missing)
