"""Checks of files, network and lives of machines. One promise a function; see :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from agentrl.errors import FileDenied, FileIsDirectory, FileMissing, SandboxGone
from agentrl.sandbox import SandboxBackend
from agentrl.testing.rig import ALL_BYTES, PATIENCE_SEC, dial, host_server, machine, output, refuses
from agentrl.types import Layer, Resources, SandboxSpec

# ------------------------------------------------------------------------------------------------------- files


async def files_are_bytes(backend: SandboxBackend) -> None:
    """Any bytes, empty, and 20 MB, through parents that did not exist, with the mode asked for, over what was there."""
    async with machine(backend) as sandbox:
        for name, data in (("all", ALL_BYTES + b"\r\n\r"), ("empty", b""), ("big", ALL_BYTES * (20_000_000 // 256))):
            path = f"/tmp/new dir/{name}/file"
            await sandbox.write_file(path, b"old and longer than nothing", mode=0o600)
            await sandbox.write_file(path, data, mode=0o755)
            assert await sandbox.read_file(path) == data, f"{name} came back different"
        assert (await output(sandbox, "stat -c %a '/tmp/new dir/all/file'")) == "755\n"


async def reads_are_honest(backend: SandboxBackend) -> None:
    """Missing, a folder, a FIFO, a device, too large: each its error, none an empty answer or an endless wait."""
    async with machine(backend) as sandbox:
        await sandbox.exec("mkfifo /tmp/fifo; head -c 1000 /dev/zero > /tmp/large", timeout_sec=PATIENCE_SEC)
        await refuses(FileMissing, sandbox.read_file("/tmp/missing"))
        await refuses(FileIsDirectory, sandbox.read_file("/tmp"))
        await refuses(FileDenied, sandbox.read_file("/tmp/fifo"))
        await refuses(FileDenied, sandbox.read_file("/dev/zero"))
        await refuses(FileDenied, sandbox.read_file("/tmp/large", max_bytes=999))
        assert await sandbox.read_file("/tmp/large", max_bytes=1000) == bytes(1000)


async def writes_are_honest(backend: SandboxBackend) -> None:
    """Over a folder and below a file: refused. Over a FIFO or a link: replaced, what the link points at untouched."""
    async with machine(backend) as sandbox:
        script = "mkfifo /tmp/fifo; echo precious > /tmp/target; ln -s /tmp/target /tmp/link"
        await sandbox.exec(script, timeout_sec=PATIENCE_SEC)
        await refuses(FileIsDirectory, sandbox.write_file("/tmp", b"x"))
        await refuses(FileDenied, sandbox.write_file("/tmp/target/below", b"x"))
        for path in ("/tmp/fifo", "/tmp/link"):
            await sandbox.write_file(path, b"new")
            assert await sandbox.read_file(path) == b"new", path
        assert await sandbox.read_file("/tmp/target") == b"precious\n", "the link was followed"


# ----------------------------------------------------------------------------------------------------- network


async def named_ports_are_reached(backend: SandboxBackend) -> None:
    """A port of ``spec.reach`` answers under ``host_url``, with megabytes and many times at once."""
    reply = b"hello" * 200_000
    async with host_server(reply) as port, machine(backend, SandboxSpec(reach=(port,))) as sandbox:
        url = urlsplit(sandbox.host_url(port))
        assert url.scheme == "http" and url.hostname is not None, url
        script = dial(url.hostname, url.port or 80)
        results = await asyncio.gather(*(sandbox.exec(script, timeout_sec=PATIENCE_SEC) for _ in range(8)))
        assert all(result.stdout == reply for result in results), [len(result.stdout) for result in results]


async def other_ports_are_not(backend: SandboxBackend) -> None:
    """A port that was not named is not reached."""
    async with host_server(b"secret") as port, machine(backend) as sandbox:
        for host in ("127.0.0.1", "localhost", "host.docker.internal"):
            result = await sandbox.exec(dial(host, port), timeout_sec=PATIENCE_SEC)
            assert b"secret" not in result.stdout, f"the host's port is open at {host}"


# ---------------------------------------------------------------------------------------------------- machines


async def close_is_final_and_idempotent(backend: SandboxBackend) -> None:
    """Closing twice is fine; afterwards every call says gone, one that was under way too."""
    async with machine(backend) as sandbox:
        under_way = asyncio.create_task(sandbox.exec("touch /tmp/on; sleep 600", timeout_sec=900))
        await sandbox.exec("until [ -e /tmp/on ]; do sleep 0.02; done", timeout_sec=PATIENCE_SEC)
        await sandbox.close()
        await sandbox.close()
        for call in (under_way, sandbox.exec("true", timeout_sec=5), sandbox.read_file("/etc/passwd")):
            try:
                await call
            except SandboxGone:
                continue
            raise AssertionError("a closed machine answered")


async def machines_are_listed_until_closed(backend: SandboxBackend) -> None:
    """``list`` finds a machine by its labels, until it was closed or deleted; deleting what is gone is success."""
    token = secrets.token_hex(8)
    labels = {"agentrl-run": "conformance", "agentrl-rollout": token}
    wanted = {"agentrl-rollout": token}
    closed = await backend.create(SandboxSpec(), labels=labels, lifetime_sec=600)
    deleted = await backend.create(SandboxSpec(), labels=labels, lifetime_sec=600)
    listed = await backend.list(wanted)
    assert {info.id for info in listed} == {closed.id, deleted.id}, listed
    assert all(labels.items() <= info.labels.items() for info in listed), listed
    assert await backend.list({"agentrl-rollout": "nobody's"}) == []
    await closed.close()
    await backend.delete(deleted.id)
    await backend.delete(deleted.id)
    assert await backend.list(wanted) == [], "something is left"


async def machines_are_apart(backend: SandboxBackend) -> None:
    """What one writes, in its own folders and the system's, the other does not see."""
    async with machine(backend) as one, machine(backend) as other:
        for path in ("/tmp/mine", "/mine/file", "/opt/mine"):
            await one.write_file(path, b"x")
            await refuses(FileMissing, other.read_file(path))


async def a_lifetime_ends(backend: SandboxBackend) -> None:
    """A machine dies by itself when its lifetime is over."""
    sandbox = await backend.create(SandboxSpec(), labels={"agentrl-run": "conformance"}, lifetime_sec=2)
    try:
        await sandbox.exec("sleep 600", timeout_sec=900)
    except SandboxGone:
        return
    finally:
        await sandbox.close()
    raise AssertionError("it outlived its lifetime")


async def layers_are_baked_once(backend: SandboxBackend) -> None:
    """Concurrent ``prepare`` calls build a layer once; machines of the image have its files and what its commands did."""
    layer = Layer(
        "conformance",
        ("/opt/conformance/tool > /opt/conformance/made",),
        {
            "/opt/conformance/tool": f"#!/bin/sh\necho {secrets.token_hex(8)}; cat /proc/sys/kernel/random/uuid\n".encode()
        },
        {"/opt/conformance/fetched": lambda: Path(__file__)},
    )
    second = Layer("conformance-2", ("cp /opt/conformance/made /opt/conformance/copy",))
    images = await asyncio.gather(*(backend.prepare(None, Resources(), [layer, second]) for _ in range(3)))
    assert len(set(images)) == 1, images
    made = set()
    for _ in range(2):
        async with machine(backend, SandboxSpec(image=images[0])) as sandbox:
            made.add(await output(sandbox, "cat /opt/conformance/made"))
            assert (await output(sandbox, "cmp /opt/conformance/made /opt/conformance/copy")) == ""
            assert await sandbox.read_file("/opt/conformance/fetched") == Path(__file__).read_bytes()
            await sandbox.write_file("/opt/conformance/made", b"private")
    assert len(made) == 1 and "private" not in made, f"the layer is not shared and frozen: {made}"
    assert await backend.prepare(None, Resources(), []) is None, "without layers the image is the image"
