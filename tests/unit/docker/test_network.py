"""The ways to the gateway: which are declared, and that they lead there."""

from __future__ import annotations

import asyncio
import os

import pytest
from docker_engine import said

from agentrl.api import SandboxRefused
from agentrl.testing.rig import dial, host_server
from agentrl_docker.backend import DockerBackend
from agentrl_docker.namespace import listen_inside
from agentrl_docker.settings import DockerSettings

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def declared(**fields):
    return DockerBackend(DockerSettings(**fields)).capabilities


@pytest.fixture
def ordinary(monkeypatch):
    """As if we were nobody special."""
    monkeypatch.setattr("agentrl_docker.network.may_enter", lambda: False)


@needs_root
def test_root_beside_the_engine_closes_the_network_by_default():
    can = declared()
    assert can.network_policy and can.reach == {"loopback"}
    assert declared(network="bridge").reach == {"loopback", "public"}
    assert not declared(network="bridge").network_policy


def test_an_ordinary_user_gets_the_bridge_by_default(ordinary):
    assert declared().reach == {"bridge", "public"} and not declared().network_policy
    assert declared(network="none").reach == set() and declared(network="none").network_policy
    assert declared(network="host").reach == {"loopback", "public"}


def test_an_engine_elsewhere_reaches_us_by_name_only():
    for network in ("auto", "bridge", "host"):
        assert declared(host="tcp://192.0.2.1:2375", network=network).reach == {"public"}


async def test_host_url_refuses_where_no_way_leads(opened, machine, ordinary):
    async with machine(opened(network="none")) as sandbox:
        with pytest.raises(SandboxRefused, match="AGENTRL_REACH=relay"):
            sandbox.host_url(80)


@needs_root
@pytest.mark.parametrize(("mode", "network"), [("auto", False), ("auto", True), ("bridge", False), ("host", False)])
async def test_the_gateway_is_on_the_containers_own_loopback(opened, machine, mode, network):
    backend = opened(network=mode)
    async with host_server(b"gateway") as port, machine(backend, reach=(port,), network=network) as sandbox:
        assert sandbox.host_url(port) == f"http://127.0.0.1:{port}"
        assert await said(sandbox, dial("127.0.0.1", port, 60)) == "gateway"
        interfaces = set((await said(sandbox, "ls /sys/class/net")).split())
        assert ("eth0" in interfaces) is (mode != "auto" or network), interfaces


async def test_over_the_bridge_the_host_has_a_name(opened, machine, ordinary):
    async def answer(_reader, writer):
        writer.write(b"gateway")
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    async with machine(opened(), reach=(port,)) as sandbox:
        assert sandbox.host_url(port) == f"http://host.docker.internal:{port}"
        assert await said(sandbox, dial("host.docker.internal", port, 60)) == "gateway"
    server.close()


@needs_root
def test_a_process_of_another_machine_is_not_entered():
    with pytest.raises(SandboxRefused, match="SWE_DOCKER_NETWORK=bridge"):
        listen_inside(os.getpid(), "f" * 64, [12345])
    with pytest.raises(SandboxRefused, match="SWE_DOCKER_NETWORK=bridge"):
        listen_inside(2**22 + 1, "f" * 64, [12345])
