"""Checks of baked layers. One promise a function; see :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from agentrl.errors import SandboxError
from agentrl.sandbox import SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import machine, output, refuses, says
from agentrl.types import Layer, Resources, SandboxSpec

_HERE = 'echo "$PATH|$HOME|$LANG|$USER|$(id -u)|$PWD"'


async def layers_are_baked_once(backend: SandboxBackend) -> None:
    """``prepare`` builds a layer once, when called at once and when called again; machines have its files and what it did."""
    tool = f"#!/bin/sh\necho {secrets.token_hex(8)}; cat /proc/sys/kernel/random/uuid\n".encode()
    first = Layer(
        "conformance",
        ("/opt/conformance/tool > /opt/conformance/made", "test $(id -u) = 0"),
        {"/opt/conformance/tool": tool},
        {"/opt/conformance/fetched": lambda: Path(__file__)},
    )
    second = Layer("conformance-2", ("cp /opt/conformance/made /opt/conformance/copy",))
    images = await asyncio.gather(*(backend.prepare(None, Resources(), [first, second]) for _ in range(3)))
    images += [await backend.prepare(None, Resources(), [first, second])]
    assert len(set(images)) == 1, images
    made = set()
    for _ in range(2):
        async with machine(backend, SandboxSpec(image=images[0])) as sandbox:
            made.add(await output(sandbox, "cat /opt/conformance/made"))
            await says(sandbox, "cmp /opt/conformance/made /opt/conformance/copy", "")
            fetched = await sandbox.read_file("/opt/conformance/fetched")
            assert fetched == Path(__file__).read_bytes(), f"{len(fetched)} other bytes were fetched"
            await sandbox.write_file("/opt/conformance/made", b"private")
    assert len(made) == 1 and "private" not in made, f"the layer is not shared and frozen: {made}"


async def layers_stack(backend: SandboxBackend) -> None:
    """A layer goes on top of an image that has one; without layers the image is the image."""
    name = secrets.token_hex(8)
    below = await backend.prepare(None, Resources(), [Layer(f"below-{name}", (f"echo {name} > /opt/below",))])
    above = await backend.prepare(below, Resources(), [Layer(f"above-{name}", ("cp /opt/below /opt/above",))])
    assert below != above, below
    for image, script in (
        (above, "cat /opt/below /opt/above"),
        (below, "cat /opt/below; ls /opt/above 2>/dev/null || echo no"),
    ):
        async with machine(backend, SandboxSpec(image=image)) as sandbox:
            await says(sandbox, script, f"{name}\n{name if image == above else 'no'}\n")
    assert await backend.prepare(None, Resources(), []) is None, "no layers, another image"
    assert await backend.prepare(below, Resources(), []) == below, "no layers, another image"


async def baked_machines_are_like_others(backend: SandboxBackend) -> None:
    """A layer changes neither the environment nor the user nor the folder in which commands run."""
    image = await backend.prepare(None, Resources(), [Layer("conformance-env", ("export PATH=/nowhere; cd /opt",))])
    async with machine(backend) as plain, machine(backend, SandboxSpec(image=image, env={"OURS": "1"})) as baked:
        await says(baked, _HERE, await output(plain, _HERE))
        await says(baked, 'echo "$OURS"', "1\n")


async def a_layer_that_fails_is_no_image(backend: SandboxBackend) -> None:
    """A command that fails ends ``prepare`` with an error, and again at the next call: nothing half baked is kept."""
    layer = Layer(f"conformance-broken-{secrets.token_hex(8)}", ("exit 7",))
    for _ in range(2):
        await refuses(SandboxError, backend.prepare(None, Resources(), [layer]))


CHECKS = checks(layers_are_baked_once, layers_stack, baked_machines_are_like_others, a_layer_that_fails_is_no_image)
