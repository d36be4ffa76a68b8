"""Creations that fail half way, and connections that break: nothing is left, nothing is taken for something else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from docker_engine import LABELS
from docker_proxy import EngineProxy

from agentrl.api import SandboxError, SandboxGone, SandboxSpec, SandboxTransient


@pytest.fixture
async def proxy(host) -> AsyncIterator[EngineProxy]:
    async with EngineProxy(host) as between:
        yield between


def create(backend):
    return backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=300)


@pytest.mark.parametrize("word", ["containers/create", "/start", "/exec"])
async def test_a_cancelled_creation_leaves_nothing(opened, proxy, docker, word):
    backend = opened(host=proxy.host)
    proxy.trouble(word, "hold")
    creation = asyncio.create_task(create(backend))
    await proxy.troubled.wait()
    creation.cancel()
    await asyncio.sleep(0)
    proxy.go.set()
    with pytest.raises(asyncio.CancelledError):
        await creation
    assert docker("ps", "--all", "--quiet") == ""


@pytest.mark.parametrize("word", ["containers/create", "/start"])
@pytest.mark.parametrize("what", ["cut", "silence"])
async def test_a_creation_without_answer_leaves_nothing_and_may_be_repeated(opened, proxy, docker, word, what):
    backend = opened(host=proxy.host, timeout_sec=2)
    proxy.trouble(word, what)
    with pytest.raises(SandboxTransient):
        await create(backend)
    assert docker("ps", "--all", "--quiet") == ""
    sandbox = await create(backend)
    await sandbox.close()


async def test_a_cut_answer_is_neither_a_result_nor_another_run(opened, proxy):
    backend = opened(host=proxy.host)
    sandbox = await create(backend)
    proxy.trouble("/start", "cut")
    try:
        result = await sandbox.exec("echo x >> /tmp/runs; echo done", timeout_sec=60)
        assert result.stdout == b"done\n"
        assert await sandbox.read_file("/tmp/runs") == b"x\n"
    finally:
        await sandbox.close()


async def test_a_deletion_without_answer_is_an_error_and_works_the_second_time(opened, proxy, docker):
    backend = opened(host=proxy.host, timeout_sec=2)
    sandbox = await create(backend)
    proxy.trouble(f"containers/{sandbox.id}?", "cut")
    with pytest.raises(SandboxError):
        await sandbox.close()
    await sandbox.close()
    assert docker("ps", "--all", "--quiet") == ""


async def test_an_engine_that_goes_away_is_no_dead_machine(opened, proxy):
    async with EngineProxy(f"unix://{proxy._socket}") as other:
        backend = opened(host=other.host)
        sandbox = await create(backend)
    with pytest.raises(SandboxError) as caught:
        await asyncio.wait_for(sandbox.exec("true", timeout_sec=1), 60)
    assert not isinstance(caught.value, SandboxGone)
    await opened().delete(sandbox.id)
