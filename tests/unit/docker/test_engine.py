"""The connection: which engines will do, and what is said about those that will not."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from aiodocker import DockerError
from aiohttp import web

from agentrl.api import SandboxError, SandboxRefused, SandboxThrottled, SandboxTransient
from agentrl_docker.backend import DockerBackend
from agentrl_docker.engine import connect, meaning
from agentrl_docker.settings import DockerSettings


async def probed(host: str, **fields) -> str | None:
    backend = DockerBackend(DockerSettings(host=host, **fields))
    try:
        return await backend.probe()
    finally:
        await backend.aclose()


async def test_no_engine_says_how_to_get_one(tmp_path):
    problem = await probed(f"unix://{tmp_path}/none.sock")
    assert "no Docker engine" in problem and "apt-get install docker.io" in problem and "DOCKER_HOST" in problem


async def test_a_dead_engines_socket_says_how_to_start_it(tmp_path):
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    problem = await probed(f"unix://{path}")
    assert "is not running" in problem and "systemctl start docker" in problem


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a while")
async def test_a_closed_socket_says_which_group_opens_it(tmp_path):
    path = tmp_path / "root.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        theirs.listen()
        path.chmod(0o600)
        os.seteuid(65534)
        try:
            problem = await probed(f"unix://{path}")
        finally:
            os.seteuid(0)
    assert "no permission" in problem and "usermod -aG docker" in problem


@pytest.mark.parametrize(("spoken", "good"), [("1.40", False), ("1.41", True), ("1.100", True)])
async def test_an_engine_must_be_new_enough(tmp_path, spoken, good):
    async def version(_request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": spoken})

    app = web.Application()
    app.router.add_get("/{any:.*}", version)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "engine.sock")).start()
    try:
        problem = await probed(f"unix://{tmp_path}/engine.sock")
    finally:
        await runner.cleanup()
    assert problem is None if good else "1.41" in problem and spoken in problem


@pytest.mark.parametrize(
    ("host", "remedy"),
    [("ssh://me@there", "ssh -nNT -L"), ("/var/run/docker.sock", "unix://PATH"), ("tcp://", "tcp://HOST:PORT")],
)
async def test_an_address_that_cannot_be_one_says_what_can(host, remedy):
    assert remedy in await probed(host)


async def test_tls_without_certificates_names_the_folder(tmp_path):
    problem = await probed("tcp://127.0.0.1:1", tls_verify=True, cert_path=str(tmp_path))
    assert str(tmp_path) in problem and "ca.pem" in problem


async def test_a_missing_default_image_is_found_early(docker_settings):
    assert await probed(docker_settings().host, image="agentrl-nowhere:1") is not None
    assert await probed(docker_settings().host, image=docker_settings().image) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, SandboxRefused),
        (403, SandboxRefused),
        (429, SandboxThrottled),
        (500, SandboxTransient),
        (503, SandboxTransient),
    ],
)
def test_statuses_decide_about_retries(status, kind):
    assert type(meaning(DockerError(status, "words"), "what")) is kind


async def test_only_a_connection_that_never_was_is_safe_to_repeat(tmp_path):
    async def hang_up(_reader, writer):
        writer.close()

    server = await asyncio.start_unix_server(hang_up, tmp_path / "engine.sock")
    for path, kind in ((tmp_path / "none.sock", SandboxTransient), (tmp_path / "engine.sock", SandboxError)):
        client = connect(DockerSettings(host=f"unix://{path}"))
        with pytest.raises(DockerError) as caught:
            await client.containers.container("x").kill()
        assert type(meaning(caught.value, "killing")) is kind
        await client.close()
        await client.connector.close()
    server.close()
