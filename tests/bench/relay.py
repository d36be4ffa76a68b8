"""What a relay costs: a small request, a big one and a stream of pieces from inside a sandbox, directly and over both channels.

Run as ``python tests/bench/relay.py [--rounds N]``. Medians in ms, and how many times the direct way that is: only the ratios of one
run mean something on a busy machine. The sandbox is a folder of this host without walls, so that the channels are what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from port_host import Ported, PortHost

from agentrl.relay.relay import Relay
from agentrl.types import SandboxSpec
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings

ROOT = "/s/bench"
PIECES, PIECE_SEC = 20, 0.02
# Seconds of each of N requests on one connection; of the stream, the longest time between two pieces.
CLIENT = """
import http.client, json, sys, time
host, port = sys.argv[1].split("//")[1].split(":")
root, rounds = sys.argv[2], int(sys.argv[3])
connection = http.client.HTTPConnection(host, int(port))
def call(path, body):
    start = time.perf_counter()
    connection.request("POST", root + path, body)
    connection.getresponse().read()
    return time.perf_counter() - start
def stream():
    connection.request("POST", root + "/pieces", b"")
    answer, gaps, last = connection.getresponse(), [], None
    while answer.readline():
        now = time.perf_counter()
        gaps, last = gaps + ([now - last] if last else []), now
    return max(gaps)
print(json.dumps({
    "1 kB": [call("/echo", bytes(1000)) for _ in range(rounds)],
    "1 MB": [call("/echo", bytes(10**6)) for _ in range(max(1, rounds // 4))],
    "longest gap in a stream": [stream() for _ in range(max(1, rounds // 10))],
}))
"""


async def _handle(request: web.Request) -> web.StreamResponse:
    if not request.path.endswith("/pieces"):
        return web.Response(body=await request.read())
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(PIECES):
        await response.write(b"data: x\n")
        await asyncio.sleep(PIECE_SEC)
    return response


@asynccontextmanager
async def _service() -> AsyncIterator[int]:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", _handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Medians in ms: way → what → how long."""
    with tempfile.TemporaryDirectory() as folder:
        async with _service() as port, PortHost() as host:
            backend = LocalBackend(LocalSettings(state_dir=folder, unconfined=True))
            sandbox = Ported(await backend.create(SandboxSpec(), labels={}, lifetime_sec=3600), host)

            async def run(url: str) -> dict[str, float]:
                argv = ["python3", "-c", CLIENT, url, ROOT, str(rounds)]
                result = await sandbox.exec(argv, timeout_sec=600)
                assert result.ok, result.stderr
                return {what: 1000 * statistics.median(times) for what, times in json.loads(result.stdout).items()}

            found = {"direct": await run(f"http://127.0.0.1:{port}")}
            for way, tunnel in (("WebSocket", True), ("commands", False)):
                async with Relay(sandbox, port=port, root=ROOT, tunnel=tunnel) as relay:
                    found[way] = await run(relay.url)
            await backend.aclose()
            return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    found = asyncio.run(measure(parser.parse_args().rounds))
    direct = found["direct"]
    for what, base in direct.items():
        print(
            f"{what:>24}", *(f"{way} {times[what]:8.2f} ms (x{times[what] / base:.1f})" for way, times in found.items())
        )


if __name__ == "__main__":
    main()
