"""What checks of sandboxes are made with: a fresh machine, questions to it, servers on the host."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

from agentrl.errors import SandboxError
from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.types import ExecResult, SandboxSpec

PATIENCE_SEC = 180.0
LIFETIME_SEC = 3600.0
ALL_BYTES = bytes(range(256))
LABELS: Mapping[str, str] = {"agentrl-run": "conformance"}


@asynccontextmanager
async def machine(backend: SandboxBackend, spec: SandboxSpec | None = None) -> AsyncIterator[Sandbox]:
    """A fresh machine for the block."""
    labels = {**LABELS, "agentrl-rollout": secrets.token_hex(4)}
    sandbox = await backend.create(spec or SandboxSpec(), labels=labels, lifetime_sec=LIFETIME_SEC)
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def run(
    sandbox: Sandbox,
    command: str | Sequence[str],
    *,
    user: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> ExecResult:
    """Run ``command`` with as much patience as any check has."""
    return await sandbox.exec(command, timeout_sec=PATIENCE_SEC, user=user, cwd=cwd, env=env, stdin=stdin)


async def says(sandbox: Sandbox, command: str, wanted: str) -> None:
    """Runs ``command``, which must say exactly ``wanted``, both streams together. Raises: AssertionError."""
    found = await output(sandbox, command)
    assert found == wanted, f"{command} says {found[:300]!r} instead of {wanted[:300]!r}"


async def output(sandbox: Sandbox, command: str) -> str:
    """What ``command`` says, both streams, whatever its exit code."""
    result = await run(sandbox, command)
    return (result.stdout + result.stderr).decode()


async def appears(sandbox: Sandbox, path: str) -> None:
    """Wait until there is something at ``path`` inside. Raises: AssertionError."""
    result = await run(sandbox, f"for i in $(seq 2000); do [ -e {path} ] && exit 0; sleep 0.05; done; exit 1")
    assert result.ok, f"{path} did not appear"


async def ends(sandbox: Sandbox, pid: str) -> bool:
    """Whether process ``pid`` inside is gone, within half a minute."""
    script = f"for i in $(seq 600); do kill -0 {pid} 2>/dev/null || exit 0; sleep 0.05; done; exit 1"
    return (await run(sandbox, script)).ok


async def refuses(kind: type[SandboxError], call: Awaitable[object]) -> None:
    """Awaits ``call``, which must raise ``kind`` in time. Raises: AssertionError."""
    try:
        async with asyncio.timeout(PATIENCE_SEC):
            answer = await call
    except kind:
        return
    except TimeoutError:
        raise AssertionError(f"expected {kind.__name__}, got no answer within {PATIENCE_SEC:.0f} s") from None
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


@asynccontextmanager
async def http_server(routes: Mapping[str, Handler]) -> AsyncIterator[int]:
    """An HTTP server on the host's loopback, path → handler of any method; its port."""
    app = web.Application(client_max_size=1 << 30)
    for path, handler in routes.items():
        app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def dial(host: str, port: int, patience_sec: int = 15) -> str:
    """A script that prints what a TCP server says, and nothing if there is none."""
    return f"timeout {patience_sec} bash -c 'cat < /dev/tcp/{host}/{port}' 2>/dev/null"
