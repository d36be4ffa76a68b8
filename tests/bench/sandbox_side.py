"""What a benchmark of sandboxes needs of each backend: where it is played, and the bare call that ours is measured against.

Not here: what is measured (:mod:`sandbox`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection

from agentrl.api import SandboxBackend
from agentrl.plugins import load_plugins
from agentrl.settings import resolve

Bare = Callable[[], Awaitable[object]]


REQUESTS = 20_000


def serve(name: str, latency_sec: float, pipe: Connection) -> None:
    """A loopback provider in this process: sends its environment, ends when told to, sends how many machines it had left.

    Each request is answered ``latency_sec`` late, as if the provider were that far away.
    """
    asyncio.run(_serve(name, latency_sec, pipe))


async def _serve(name: str, latency_sec: float, pipe: Connection) -> None:
    from agentrl.testing.loopback_daytona import LoopbackDaytona
    from agentrl.testing.loopback_e2b import LoopbackE2B

    async with LoopbackE2B() if name == "e2b" else LoopbackDaytona() as server:
        if latency_sec:
            server.faults.add("slow", times=REQUESTS, delay_sec=latency_sec)
        if isinstance(server, LoopbackE2B):
            pipe.send(server.environment())
        else:
            pipe.send({"DAYTONA_API_URL": server.url, "DAYTONA_API_KEY": server.api_key})
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        pipe.send(len(server.machines))


def build(name: str, environment: Mapping[str, str]) -> SandboxBackend:
    """The backend as a run would have it, with ``environment`` above the process's own."""
    registry = load_plugins(resolve(overrides={**environment, "SWE_SANDBOX": name})).registry
    backend: SandboxBackend = registry.build(registry.get("sandboxes", name))
    return backend


@asynccontextmanager
async def bare(name: str, sandbox_id: str, environment: Mapping[str, str]) -> AsyncIterator[Bare]:
    """The shortest way to run ``true`` in that machine without us: the provider's own SDK (a plain process, where there is none)."""
    opener = {"local": _process, "docker": _docker, "e2b": _e2b, "daytona": _daytona}[name]
    async with opener(sandbox_id, environment) as call:
        yield call


@asynccontextmanager
async def _process(_sandbox_id: str, _environment: Mapping[str, str]) -> AsyncIterator[Bare]:
    async def call() -> None:
        process = await asyncio.create_subprocess_exec("bash", "-c", "true", stdout=-1, stderr=-1, stdin=-3)
        await process.communicate()

    yield call


@asynccontextmanager
async def _docker(sandbox_id: str, environment: Mapping[str, str]) -> AsyncIterator[Bare]:
    import aiodocker

    host = environment.get("DOCKER_HOST") or resolve().values.get("DOCKER_HOST")
    async with aiodocker.Docker(url=host) as docker:
        container = await docker.containers.get(sandbox_id)

        async def call() -> None:
            execution = await container.exec(["bash", "-c", "true"])
            async with execution.start() as stream:
                while await stream.read_out() is not None:
                    pass
            await execution.inspect()

        yield call


@asynccontextmanager
async def _e2b(sandbox_id: str, environment: Mapping[str, str]) -> AsyncIterator[Bare]:
    from e2b import AsyncSandbox

    names = {"E2B_API_KEY": "api_key", "E2B_API_URL": "api_url", "E2B_SANDBOX_URL": "sandbox_url"}
    options = {option: environment[name] for name, option in names.items() if name in environment}
    box = await AsyncSandbox.connect(sandbox_id, timeout=3600, **options)
    yield lambda: box.commands.run("true")


@asynccontextmanager
async def _daytona(sandbox_id: str, environment: Mapping[str, str]) -> AsyncIterator[Bare]:
    from daytona import AsyncDaytona, DaytonaConfig

    names = {"DAYTONA_API_KEY": "api_key", "DAYTONA_API_URL": "api_url"}
    config = DaytonaConfig(**{option: environment[name] for name, option in names.items() if name in environment})
    async with AsyncDaytona(config) as client:
        machine = await client.get(sandbox_id)
        yield lambda: machine.process.exec("true")
