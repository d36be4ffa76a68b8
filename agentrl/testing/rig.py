"""What checks of sandboxes are made with: a fresh machine, questions to it, a server on the host."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from agentrl.errors import FileError
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.types import SandboxSpec

PATIENCE_SEC = 60.0
ALL_BYTES = bytes(range(256))


@asynccontextmanager
async def machine(backend: SandboxBackend, spec: SandboxSpec | None = None) -> AsyncIterator[Sandbox]:
    """A fresh machine for the block."""
    labels = {"agentrl-run": "conformance", "agentrl-rollout": secrets.token_hex(4)}
    sandbox = await backend.create(spec or SandboxSpec(), labels=labels, lifetime_sec=600)
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def output(sandbox: Sandbox, command: str) -> str:
    """What ``command`` says, both streams, whatever its exit code."""
    result = await sandbox.exec(command, timeout_sec=PATIENCE_SEC)
    return (result.stdout + result.stderr).decode()


async def ends(sandbox: Sandbox, pid: str) -> bool:
    """Whether process ``pid`` inside is gone, within ten seconds."""
    script = f"for i in $(seq 200); do kill -0 {pid} 2>/dev/null || exit 0; sleep 0.05; done; exit 1"
    return (await sandbox.exec(script, timeout_sec=PATIENCE_SEC)).ok


async def refuses(kind: type[FileError], call: Awaitable[object]) -> None:
    """Whether awaiting ``call`` raises ``kind``."""
    try:
        answer = await call
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, got {str(answer)[:80]}")


@asynccontextmanager
async def host_server(reply: bytes) -> AsyncIterator[int]:
    """A server on the host's loopback that says ``reply`` to whoever connects; its port."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def dial(host: str, port: int) -> str:
    """A script that prints what a TCP server says, and nothing if there is none."""
    return f"timeout 10 bash -c 'cat < /dev/tcp/{host}/{port}' 2>/dev/null"
