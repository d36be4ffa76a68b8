"""Checks of the network: what a machine reaches and what it does not. See :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from urllib.parse import SplitResult, urlsplit

import aiohttp
from aiohttp import web

from agentrl.sandbox import Sandbox, SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import PATIENCE_SEC, dial, host_server, http_server, machine, output, run
from agentrl.types import SandboxSpec

BODY_BYTES = 5_000_000
OUTSIDE = (("1.1.1.1", 443), ("8.8.8.8", 53))
"""Where the internet is, if there is any: these numbers answer TCP without a name service."""

_GATEWAY = r"""while read -r _ to via _; do [ "$to" = 00000000 ] &&
printf '%d.%d.%d.%d\n' 0x${via:6:2} 0x${via:4:2} 0x${via:2:2} 0x${via:0:2}; done < /proc/net/route"""


async def named_ports_are_reached(backend: SandboxBackend) -> None:
    """A port of ``spec.reach`` answers under ``host_url``, with megabytes and many times at once."""
    reply = b"hello" * 200_000
    async with host_server(reply) as port, machine(backend, SandboxSpec(reach=(port,))) as sandbox:
        url = _host(sandbox, port)
        results = await asyncio.gather(*(run(sandbox, dial(url.hostname or "", url.port or 80, 100)) for _ in range(8)))
        assert all(result.stdout == reply for result in results), [len(result.stdout) for result in results]


async def big_requests_arrive(backend: SandboxBackend) -> None:
    """A POST of 5 MB reaches the host whole, eight at once."""

    async def digest(request: web.Request) -> web.Response:
        return web.Response(text=hashlib.sha256(await request.read()).hexdigest())

    body = secrets.token_bytes(1000) * (BODY_BYTES // 1000)
    async with http_server({"/digest": digest}) as port, machine(backend, SandboxSpec(reach=(port,))) as sandbox:
        await sandbox.write_file("/tmp/body", body)
        script = f"{_connect(_host(sandbox, port), 'POST', '/digest', 3, len(body))}; cat /tmp/body >&3; cat <&3"
        results = await asyncio.gather(*(run(sandbox, script) for _ in range(8)))
        wanted = hashlib.sha256(body).hexdigest().encode()
        assert all(result.stdout.endswith(wanted) for result in results), [result.stdout[-200:] for result in results]


async def replies_stream(backend: SandboxBackend) -> None:
    """A reply arrives chunk by chunk: the second is sent when the machine has said that it saw the first."""
    seen = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        async with asyncio.timeout(PATIENCE_SEC / 2):
            await seen.wait()
        await response.write(b"two\n")
        return response

    async def note(_request: web.Request) -> web.Response:
        seen.set()
        return web.Response()

    async with (
        http_server({"/stream": stream, "/seen": note}) as port,
        machine(backend, SandboxSpec(reach=(port,))) as sandbox,
    ):
        url = _host(sandbox, port)
        script = (
            f"{_connect(url, 'GET', '/stream', 3)}; while read -r line <&3; do case $line in "
            f"one) {_connect(url, 'GET', '/seen', 4)}; cat <&4 >/dev/null;; two) echo both; exit;; esac; done"
        )
        result = await run(sandbox, script)
        assert result.stdout == b"both\n", result


async def other_ports_are_not_reached(backend: SandboxBackend) -> None:
    """A port of the host that was not named is closed, under each name that the host may have."""
    async with (
        host_server(b"secret") as port,
        host_server(b"open") as named,
        machine(backend, SandboxSpec(reach=(named,))) as sandbox,
    ):
        gateways = (await output(sandbox, _GATEWAY)).split()
        for host in ("127.0.0.1", "localhost", "host.docker.internal", *gateways):
            result = await run(sandbox, dial(host, port))
            assert b"secret" not in result.stdout, f"the host's port is open at {host}"


async def the_outside_is_closed(backend: SandboxBackend) -> None:
    """Without ``spec.network`` nobody out there is reached."""
    async with machine(backend) as sandbox:
        for host, port in OUTSIDE:
            result = await run(sandbox, f"timeout 4 bash -c ': < /dev/tcp/{host}/{port}' 2>/dev/null")
            assert not result.ok, f"{host}:{port} answers"


async def ports_inside_are_served(backend: SandboxBackend) -> None:
    """``port_url`` leads from the host to a server inside, megabytes at once."""
    port = 20_000 + secrets.randbelow(10_000)
    data = secrets.token_bytes(1000) * 2000
    async with machine(backend) as sandbox:
        await sandbox.write_file("/tmp/site/file", data)
        serve = f"setsid python3 -m http.server {port} --bind 0.0.0.0 --directory /tmp/site >/dev/null 2>&1 & disown; "
        await run(sandbox, f"{serve} for i in $(seq 2000); do : < /dev/tcp/127.0.0.1/{port} && break; sleep 0.05; done")
        way = await sandbox.port_url(port)
        assert way is not None, "there is no way, although one is declared"
        async with aiohttp.ClientSession(headers=way[1]) as http:
            answers = await asyncio.gather(*(_get(http, f"{way[0].rstrip('/')}/file") for _ in range(4)))
        assert answers == [data] * 4, [len(answer) for answer in answers]


def _host(sandbox: Sandbox, port: int) -> SplitResult:
    url = urlsplit(sandbox.host_url(port))
    assert url.scheme == "http" and url.hostname is not None, url
    return url


def _connect(url: SplitResult, method: str, path: str, fd: int, length: int = 0) -> str:
    """A script that sends a request's head to descriptor ``fd``, from which the reply can be read."""
    head = f"{method} {url.path.rstrip('/')}{path} HTTP/1.1\\r\\nHost: {url.netloc}\\r\\nConnection: close\\r\\n"
    head += f"Content-Length: {length}\\r\\n\\r\\n"
    return f"exec {fd}<>/dev/tcp/{url.hostname}/{url.port or 80}; printf '{head}' >&{fd}"


async def _get(http: aiohttp.ClientSession, url: str) -> bytes:
    async with http.get(url) as answer:
        return await answer.read()


CHECKS = (
    *checks(named_ports_are_reached, big_requests_arrive, replies_stream, needs="reach"),
    *checks(other_ports_are_not_reached, needs="reach network_policy"),
    *checks(the_outside_is_closed, needs="network_policy"),
    *checks(ports_inside_are_served, needs="tunnel python3"),
)
