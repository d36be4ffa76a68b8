"""Images: missing ones, pulled ones, unfit ones, and layers baked onto them."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator

import pytest
from docker_engine import LABELS
from docker_registry import Registry
from docker_rootfs import import_rootfs

from agentrl.api import ImageUnavailable, Layer, Resources, SandboxRefused, SandboxSpec


@pytest.fixture
async def registry(docker) -> AsyncIterator[Registry]:
    async with Registry() as served:
        yield served
        for image in docker("images", "--quiet", "--filter", f"reference={served.address}/*").split():
            docker("image", "rm", "--force", image)


@pytest.fixture
def shell_only(host, docker) -> str:
    """An image with ``sh`` and nothing else."""
    name = f"agentrl-derived:shell-only-{secrets.token_hex(4)}"
    import_rootfs(name, host, seeds=("dash",))
    yield name
    docker("image", "rm", name)


def create(backend, image):
    return backend.create(SandboxSpec(image=image), labels=LABELS, lifetime_sec=3600)


async def test_a_missing_image_says_how_to_get_it(docker_backend):
    with pytest.raises(ImageUnavailable) as caught:
        await create(docker_backend, "agentrl-nowhere/x:7")
    assert "`docker pull agentrl-nowhere/x:7`" in str(caught.value)
    assert "SWE_DOCKER_PULL=missing" in str(caught.value)


async def test_no_image_at_all_names_the_setting(opened):
    for image in (None, "host"):
        with pytest.raises(ImageUnavailable, match="SWE_DOCKER_IMAGE"):
            await create(opened(image=""), image)


async def test_a_missing_image_is_pulled_once_where_that_is_allowed(opened, registry):
    backend = opened(pull="missing")
    layer = Layer("never-built", ("true",))
    pulls = (create(backend, registry.image), backend.prepare(registry.image, Resources(), [layer]))
    results = await asyncio.gather(*pulls, *(create(backend, registry.image) for _ in range(3)), return_exceptions=True)
    # It came, and turned out to be one of a single text file.
    assert all(type(result) is SandboxRefused and "has no sh" in str(result) for result in results), results
    assert registry.pulls == 1


async def test_what_the_registry_does_not_have_is_unavailable(opened, registry):
    with pytest.raises(ImageUnavailable, match="cannot be pulled"):
        await create(opened(pull="missing"), f"{registry.address}/other:1")


async def test_an_image_that_cannot_live_is_refused_and_leaves_nothing(docker_backend, shell_only, docker):
    with pytest.raises(SandboxRefused, match="needs sh and sleep"):
        await create(docker_backend, shell_only)
    assert docker("ps", "--all", "--quiet", "--filter", f"ancestor={shell_only}") == ""


async def test_a_layer_leaves_the_images_own_settings_as_they_were(docker_backend, derive, docker):
    lines = (
        'ENTRYPOINT ["/bin/echo", "a"]',
        'CMD ["b"]',
        "ENV MADE=1",
        "WORKDIR /somewhere",
        "USER agent",
        "EXPOSE 80",
    )
    below = derive(*lines, 'HEALTHCHECK CMD ["true"]')
    layer = Layer(secrets.token_hex(4), ("test $(id -u) = 0 && touch /opt/made",), {"/opt/file": b"x"})
    above = await docker_backend.prepare(below, Resources(), [layer])
    try:
        before, after = (json.loads(docker("image", "inspect", image))[0]["Config"] for image in (below, above))
        for name in ("Entrypoint", "Cmd", "Env", "WorkingDir", "User", "ExposedPorts", "Healthcheck"):
            assert after[name] == before[name], name
        assert docker("run", "--rm", "--network", "none", above) == "a b"
        plain = await docker_backend.prepare(None, Resources(), [layer])
        assert docker("run", "--rm", "--network", "none", "--entrypoint", "ls", plain, "/opt") == "file\nmade"
    finally:
        docker("image", "rm", above, plain)


BAKE = """
import asyncio, sys
from agentrl.api import Layer, Resources
from agentrl_docker.backend import DockerBackend
from agentrl_docker.settings import DockerSettings

async def main(host, image, name):
    backend = DockerBackend(DockerSettings(host=host, image=image))
    layer = Layer(name, ("cat /proc/sys/kernel/random/uuid > /opt/once",))
    print(await backend.prepare(None, Resources(), [layer]))
    await backend.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_need_the_same_layer_bake_it_once(host, docker_settings, docker):
    name = f"shared-{secrets.token_hex(4)}"
    argv = [sys.executable, "-c", BAKE, host, docker_settings().image, name]
    bakers = [await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE) for _ in range(3)]
    images = {(await baker.communicate())[0].decode().strip() for baker in bakers}
    assert len(images) == 1 and images != {""}
    assert len(docker("images", "--quiet", "--all", "--filter", f"label=agentrl-layer={name}").split()) == 1
    docker("image", "rm", *images)


async def test_a_name_that_moved_on_gets_its_layers_anew(docker_backend, host, docker, derive):
    layer = Layer(secrets.token_hex(4), ("true",))
    image = derive("ENV N=1")
    first = await docker_backend.prepare(image, Resources(), [layer])
    docker("tag", derive("ENV N=2"), image)
    second = await docker_backend.prepare(image, Resources(), [layer])
    assert first != second
    docker("image", "rm", first, second)


async def test_a_baked_image_that_was_removed_is_not_asked_of_a_registry(opened, docker):
    backend = opened(pull="missing")
    baked = await backend.prepare(None, Resources(), [Layer(secrets.token_hex(4), ("true",))])
    docker("image", "rm", baked)
    with pytest.raises(ImageUnavailable, match="removed"):
        await create(backend, baked)
