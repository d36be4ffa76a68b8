"""What a machine is, and where machines come from.

A plugin implements both Protocols; the core never asks which one it got. What can differ is declared in
:class:`~agentrl.types.Capabilities`, never probed by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agentrl.types import Capabilities, ExecResult, Layer, Resources, SandboxInfo, SandboxSpec


class Sandbox(Protocol):
    """One running machine. Safe for concurrent calls. Every method raises :class:`~agentrl.errors.SandboxGone` when the machine is gone."""

    @property
    def id(self) -> str:
        """The provider's name for it, usable with :meth:`SandboxBackend.attach`."""
        ...

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
        """Run ``command`` to its end. A string goes to ``bash -c``, a sequence is an argv.

        A non-zero exit is data. At ``timeout_sec``, and when the caller is cancelled, the whole process tree of the
        command is killed; a timeout returns the partial output with ``timed_out``. ``stdin`` None: closed. ``user`` None:
        the sandbox's default. ``env`` is added to the sandbox's own. ``idempotent`` allows a retry after the request left.

        Raises: SandboxTransient (never ran), SandboxError (may have run).
        """
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write ``data`` at the absolute ``path``, parents included, replacing what was there.

        Raises: FileIsDirectory, FileDenied.
        """
        ...

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """The bytes of a regular file. Never blocks on a FIFO or device.

        Raises: FileMissing, FileIsDirectory, FileDenied (also: not a regular file, larger than ``max_bytes``).
        """
        ...

    def host_url(self, port: int) -> str:
        """``http://…`` under which the host's loopback ``port`` is reached from inside; it was in ``spec.reach``."""
        ...

    async def port_url(self, port: int) -> tuple[str, Mapping[str, str]] | None:
        """``(URL, headers)`` under which the host reaches TCP ``port`` inside by HTTP and WebSocket; None: there is no such way.

        The headers may carry the provider's token: they belong in no log. Raises: SandboxTransient, SandboxError.
        """
        ...

    async def keep_alive(self) -> None:
        """Tell the provider that the machine is in use. The lease calls it every ``capabilities.keep_alive_sec``.

        Raises: SandboxTransient, SandboxError.
        """
        ...

    async def close(self) -> None:
        """Delete the machine. Idempotent; a machine that is already gone is success."""
        ...


class SandboxBackend(Protocol):
    """Where machines come from. The lease owns concurrency and retries: a backend tries once."""

    @property
    def capabilities(self) -> Capabilities:
        """What its machines can do."""
        ...

    async def create(self, spec: SandboxSpec, *, labels: Mapping[str, str], lifetime_sec: float) -> Sandbox:
        """Boot a machine that answers. After ``lifetime_sec`` it dies by itself, whatever became of us.

        Cancel-safe: a cancelled create leaves no machine. Raises: ImageUnavailable, SandboxRefused,
        SandboxThrottled, SandboxTransient, SandboxError.
        """
        ...

    async def attach(self, sandbox_id: str) -> Sandbox:
        """Reach a machine that another process made. Raises: SandboxGone."""
        ...

    async def list(self, labels: Mapping[str, str]) -> Sequence[SandboxInfo]:
        """All machines that carry these labels."""
        ...

    async def delete(self, sandbox_id: str) -> None:
        """Delete by id; not found is success."""
        ...

    async def prepare(self, image: str | None, resources: Resources, layers: Sequence[Layer]) -> str | None:
        """Bake ``layers`` onto ``image`` once per digest and return the image to use for :class:`SandboxSpec`.

        Concurrent calls for one digest build once. Without layers: ``image`` itself. Raises like :meth:`create`.
        """
        ...

    async def aclose(self) -> None:
        """Release clients and background tasks; machines live on until closed."""
        ...

    async def probe(self) -> str | None:
        """None if machines can be made here; otherwise one sentence: what is missing and the command that adds it."""
        ...
