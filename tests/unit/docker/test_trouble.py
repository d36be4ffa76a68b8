"""Creations that fail half way, and connections that break: nothing is left, nothing is taken for something else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable

import pytest
from docker_proxy import EngineProxy
from provider import until

from agentrl.api import SandboxError, SandboxSpec, SandboxTransient
from agentrl_docker.engine import connect, disconnect
from agentrl_docker.wire import DockerWire


@pytest.fixture
async def proxy(host) -> AsyncIterator[EngineProxy]:
    async with EngineProxy(host) as between:
        yield between


@pytest.fixture
def labels():
    """Of this test alone: others may be at work on the same engine."""
    return {"agentrl-run": secrets.token_hex(8)}


@pytest.fixture
def left(docker, labels):
    """``left()``: containers with these labels, in whatever state."""
    return lambda: docker("ps", "--all", "--quiet", "--filter", f"label=agentrl-run={labels['agentrl-run']}")


@pytest.fixture
def patience_ends(monkeypatch) -> Callable[[], None]:
    """``patience_ends()``: whatever is waited for now has taken too long. What begins later has all its time."""

    def jump() -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + 3600)

    return jump


def create(backend, labels):
    return backend.create(SandboxSpec(), labels=labels, lifetime_sec=3600)


@pytest.mark.parametrize("word", ["containers/create", "/start", "/exec"])
async def test_a_cancelled_creation_leaves_nothing(opened, proxy, labels, left, word):
    backend = opened(host=proxy.host)
    proxy.trouble(word, "hold")
    creation = asyncio.create_task(create(backend, labels))
    await proxy.troubled.wait()
    creation.cancel()
    await asyncio.sleep(0)
    proxy.go.set()
    with pytest.raises(asyncio.CancelledError):
        await creation
    assert left() == ""


@pytest.mark.parametrize("word", ["containers/create", "/start"])
@pytest.mark.parametrize("what", ["cut", "silence"])
async def test_a_creation_without_answer_leaves_nothing_and_may_be_repeated(
    opened, proxy, labels, left, patience_ends, word, what
):
    backend = opened(host=proxy.host)
    proxy.trouble(word, what)
    creation = asyncio.create_task(create(backend, labels))
    await proxy.troubled.wait()
    if what == "silence":
        await until(left)
        patience_ends()
    with pytest.raises(SandboxTransient):
        await creation
    assert left() == ""
    sandbox = await create(backend, labels)
    await sandbox.close()


async def test_a_cut_answer_is_neither_a_result_nor_another_run(opened, proxy, labels):
    backend = opened(host=proxy.host)
    sandbox = await create(backend, labels)
    proxy.trouble("/start", "cut")
    try:
        result = await sandbox.exec("echo x >> /tmp/runs; echo done", timeout_sec=60)
        assert result.stdout == b"done\n"
        assert await sandbox.read_file("/tmp/runs") == b"x\n"
    finally:
        await sandbox.close()


async def test_a_deletion_without_answer_is_an_error_and_works_the_second_time(
    opened, proxy, labels, left, patience_ends
):
    sandbox = await create(opened(host=proxy.host), labels)
    proxy.trouble(f"containers/{sandbox.id}?", "silence")
    closing = asyncio.create_task(sandbox.close())
    await proxy.troubled.wait()
    patience_ends()
    with pytest.raises(SandboxError):
        await closing
    await sandbox.close()
    assert left() == ""


async def test_an_engine_that_goes_away_is_no_dead_machine(docker_settings, docker_backend, labels, tmp_path):
    sandbox = await create(docker_backend, labels)
    client = connect(docker_settings(host=f"unix://{tmp_path}/gone.sock"))
    try:
        wire = DockerWire(client.containers.container(sandbox.id), sandbox.id)
        for call in (
            wire.run("true", env={}, timeout_sec=60, user=None),
            wire.put("/tmp/x", b""),
            wire.get("/etc/passwd"),
        ):
            with pytest.raises(SandboxTransient):
                await call
    finally:
        await disconnect(client)
        await sandbox.close()
