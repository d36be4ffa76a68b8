"""A whole sandbox over what a provider's SDK offers: short commands and files.

A backend implements :class:`Wire` for one machine, trying everything once; :class:`WiredSandbox` makes of it the contract of
:class:`~agentrl.sandbox.Sandbox`: exact bytes, real exit codes, at most one launch, ends noticed at once, trees killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Wire(Protocol):
    """What a provider offers for one machine, each call tried once.

    Raises: SandboxGone, SandboxTransient (it never arrived: safe to repeat), SandboxThrottled, SandboxRefused,
    SandboxError (unknown: it may have run).
    """

    async def run(
        self, script: str, *, env: Mapping[str, str], timeout_sec: float, user: str | None
    ) -> tuple[int, bytes]:
        """Run ``script`` (at most 60 kB, for any POSIX ``sh``) to its end: exit code and stdout.

        stdout is printable ASCII of at most 256 kB: a wire may mangle anything else. ``env`` (together at most 90 kB) travels
        on no command line. stdin is closed or empty. The script ends by itself well within ``timeout_sec``; a wire whose
        connection is cut, or whose time is over, raises SandboxError and need not kill anything.
        """
        ...

    async def put(self, path: str, data: bytes) -> None:
        """Write a new file under a fresh name in an existing folder, as root or the default user; any size."""
        ...

    async def get(self, path: str) -> bytes:
        """Read a regular file that our own script made; any size."""
        ...
