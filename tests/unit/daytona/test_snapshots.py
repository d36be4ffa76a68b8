"""Layers and images as snapshots: once per digest, whoever builds, and nothing left when it fails."""

import asyncio

import pytest
from provider import until

from agentrl.api import ImageUnavailable, Layer, Resources, SandboxError, SandboxGone, SandboxSpec
from agentrl_daytona.machines import OURS, boot
from agentrl_daytona.snapshots import digest_name

LABELS = {"agentrl-run": "r1"}
LAYER = Layer("tool", ("echo made > /opt/made; id -u > /opt/who",), {"/opt/tool": b"#!/bin/sh\necho tool\n"})


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("agentrl_daytona.snapshots.POLL_SEC", 0.05)


async def made(backend, image):
    return await backend.create(SandboxSpec(image=image), labels=LABELS, lifetime_sec=600)


async def read(backend, image, path):
    sandbox = await made(backend, image)
    try:
        return await sandbox.read_file(path)
    finally:
        await sandbox.close()


async def emptied(server):
    await until(lambda: not server.machines)


async def test_layers_become_one_snapshot_as_root(server, backend):
    second = Layer("second", ("cp /opt/made /opt/copy",))
    image = await backend.prepare("debian:12", Resources(cpus=2), [LAYER, second])
    await emptied(server)
    assert set(server.snapshots) == {image.removeprefix("snapshot:")}
    assert await read(backend, image, "/opt/copy") == b"made\n"
    assert await read(backend, image, "/opt/who") == b"0\n"
    (snapshot,) = server.snapshots.values()
    assert snapshot.origin.cpu == 2, "a snapshot keeps its machine's resources"


async def test_its_machines_have_its_resources(server, backend):
    image = await backend.prepare("debian:12", Resources(cpus=2, memory_mb=2048), [LAYER])
    spec = SandboxSpec(image=image, resources=Resources(cpus=2, memory_mb=2048))
    sandbox = await backend.create(spec, labels=LABELS, lifetime_sec=600)
    assert (server.machines[sandbox.id].origin.cpu, server.machines[sandbox.id].origin.memory) == (2, 2)


async def test_without_layers_the_image_is_the_image(server, backend):
    assert await backend.prepare("debian:12", Resources(), []) == "debian:12"
    assert await backend.prepare(None, Resources(), []) is None
    assert not server.requests


async def test_two_processes_build_once(server, backend_for):
    """Backends that do not know each other, as in two processes: the machine's name is the lock."""
    backends = [backend_for() for _ in range(3)]
    images = await asyncio.gather(*(backend.prepare("debian:12", Resources(), [LAYER]) for backend in backends))
    await emptied(server)
    assert len(set(images)) == 1 == len(server.snapshots)
    assert server.requests.count("POST /api/sandbox/{name}/snapshot") == 1


async def test_who_comes_when_it_was_just_built_does_not_build_it_again(server, backend_for, monkeypatch):
    late, other = backend_for(), backend_for()

    async def overtaken(client, order):
        monkeypatch.setattr("agentrl_daytona.snapshots.boot", boot)
        await other.prepare("debian:12", Resources(), [LAYER])
        await emptied(server)
        return await boot(client, order)

    monkeypatch.setattr("agentrl_daytona.snapshots.boot", overtaken)
    await late.prepare("debian:12", Resources(), [LAYER])
    assert server.requests.count("POST /api/sandbox/{name}/snapshot") == 1
    await emptied(server)


async def test_it_is_found_again(server, backend, backend_for):
    image = await backend.prepare("debian:12", Resources(), [LAYER])
    created = server.requests.count("POST /api/sandbox")
    assert await backend_for().prepare("debian:12", Resources(), [LAYER]) == image
    assert server.requests.count("POST /api/sandbox") == created


async def test_one_that_went_to_sleep_is_activated(server, backend):
    image = await backend.prepare("debian:12", Resources(), [LAYER])
    (snapshot,) = server.snapshots.values()
    snapshot.state = "inactive"
    assert await backend.prepare("debian:12", Resources(), [LAYER]) == image
    assert snapshot.state == "active"


async def test_a_broken_one_is_built_again(server, backend):
    image = await backend.prepare("debian:12", Resources(), [LAYER])
    (old,) = server.snapshots.values()
    old.state = "error"
    assert await backend.prepare("debian:12", Resources(), [LAYER]) == image
    (new,) = server.snapshots.values()
    assert new.id != old.id and new.state == "active"


async def test_a_capture_that_fails_though_it_was_reported_as_done(server, backend):
    server.faults.add("failed", "prepare")
    with pytest.raises(SandboxError, match="snapshot"):
        await backend.prepare("debian:12", Resources(), [LAYER])
    await emptied(server)
    assert not server.snapshots
    assert await backend.prepare("debian:12", Resources(), [LAYER])


async def test_a_failing_command_says_so_and_leaves_nothing(server, backend):
    with pytest.raises(SandboxError, match="layer bad: 'echo why; exit 3' ended with 3: why"):
        await backend.prepare("debian:12", Resources(), [LAYER, Layer("bad", ("echo why; exit 3",))])
    await emptied(server)
    assert not server.snapshots


async def test_the_builder_may_vanish(server, backend):
    building = asyncio.create_task(backend.prepare("debian:12", Resources(), [Layer("slow", ("sleep 600",))]))
    await until(lambda: "POST /toolbox/{id}/process/execute" in server.requests)
    (machine,) = server.machines
    await server.vanish(machine)
    with pytest.raises(SandboxGone):
        await building
    assert not server.snapshots


async def test_somebody_elses_builder_is_not_ours_to_delete(server, backend, backend_for):
    """We wait while its machine lives, and build when it has gone without a snapshot."""
    layer = Layer("one", ("true",))
    name = digest_name("debian:12", Resources(), [layer])
    theirs = await made(backend, "debian:12")
    server.machines[theirs.id].name = f"{name}-build"
    building = asyncio.create_task(backend_for().prepare("debian:12", Resources(), [layer]))
    await until(lambda: server.requests.count("POST /api/sandbox") >= 3)
    assert theirs.id in server.machines and not building.done()
    await theirs.close()
    assert await building == f"snapshot:{name}"


async def test_a_plain_image_is_kept_when_that_is_set(server, backend_for):
    backends = [backend_for(snapshot_images=True) for _ in range(2)]
    machines = await asyncio.gather(*(made(backend, "debian:12") for backend in backends))
    (snapshot,) = server.snapshots.values()
    assert snapshot.image == "debian:12" and snapshot.name.startswith(OURS)
    assert {server.machines[machine.id].origin.snapshot for machine in machines} == {snapshot.name}


async def test_an_image_that_no_registry_has(server, backend_for):
    server.faults.add("failed", "prepare")
    with pytest.raises(ImageUnavailable, match="manifest unknown"):
        await made(backend_for(snapshot_images=True), "nobody/no:1")
    assert not server.machines


async def test_a_cancelled_caller_does_not_spoil_it_for_others(server, backend):
    first = asyncio.create_task(backend.prepare("debian:12", Resources(), [LAYER]))
    second = asyncio.create_task(backend.prepare("debian:12", Resources(), [LAYER]))
    await until(lambda: server.machines)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second).removeprefix("snapshot:") in server.snapshots


async def test_closing_the_backend_ends_a_build_and_its_machine(server, backend_for):
    backend = backend_for()
    building = asyncio.create_task(backend.prepare("debian:12", Resources(), [Layer("slow", ("sleep 600",))]))
    await until(lambda: "POST /toolbox/{id}/process/execute" in server.requests)
    await backend.aclose()
    with pytest.raises((SandboxError, asyncio.CancelledError)):
        await building
    await emptied(server)
    assert not server.snapshots


async def test_a_builder_that_cannot_be_deleted_does_not_hide_what_went_wrong(server, backend):
    server.faults.add("error", "delete", times=9, status=500)
    with pytest.raises(SandboxError, match="ended with 3"):
        await backend.prepare("debian:12", Resources(), [Layer("bad", ("exit 3",))])


def test_the_name_tells_everything_apart():
    names = {
        digest_name(image, resources, layers)
        for image in (None, "a", "b")
        for resources in (Resources(), Resources(cpus=2), Resources(memory_mb=2048))
        for layers in ((), (LAYER,), (LAYER, LAYER))
    }
    assert len(names) == 27
    assert digest_name("a", Resources(cpus=1.5), ()) == digest_name("a", Resources(cpus=2), ()), (
        "the provider rounds up"
    )
