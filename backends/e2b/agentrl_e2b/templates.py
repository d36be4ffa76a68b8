"""Templates for images, limits and layers: built once for each digest, by whoever comes first.

E2B starts machines of templates only. A template is named after what it is made of, so that every process, here and on other
hosts, finds it again; whoever finds it half built waits for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal

import aiohttp

from agentrl.api import Layer, Resources, SandboxRefused, SandboxTransient
from agentrl_e2b.errors import translated
from agentrl_e2b.sdk import Sdk

PREFIX = "agentrl-"
_POLL_SEC = 2.0
_LOCK_POLL_SEC = 0.05
_TELL_SEC = 1.0
_TEMPLATE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
State = Literal["ready", "building", "failed", "absent"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a template is made of. ``image``: a container image or a template; ``base``: the template when there is no image."""

    image: str | None
    base: str
    resources: Resources
    layers: tuple[Layer, ...]

    @property
    def cpus(self) -> int | None:
        """Whole CPUs."""
        return None if self.resources.cpus is None else ceil(self.resources.cpus)

    @property
    def memory_mb(self) -> int | None:
        """An even number, as E2B wants it."""
        return None if self.resources.memory_mb is None else ceil(self.resources.memory_mb / 2) * 2

    @property
    def name(self) -> str:
        """The same for the same parts, everywhere."""
        words = [self.image, self.base, self.cpus, self.memory_mb, [layer.digest for layer in self.layers]]
        return PREFIX + hashlib.sha256(json.dumps(words).encode()).hexdigest()[:24]


class Templates:
    """Finds and builds. ``build_sec``: how long a build may take."""

    def __init__(self, sdk: Sdk, *, build_sec: float) -> None:
        self._sdk, self._build_sec = sdk, build_sec
        self._ready: set[str] = set()
        self._building: set[asyncio.Task[None]] = set()
        self._workers: set[Worker] = set()

    async def exists(self, name: str) -> bool:
        """Whether E2B has a template of this name. Raises: SandboxError."""
        if not _TEMPLATE_NAME.fullmatch(name):
            return False
        if name not in self._ready and await self._state(name) != "absent":
            self._ready.add(name)
        return name in self._ready

    async def provide(self, recipe: Recipe) -> str:
        """The name of a ready template. Raises: ImageUnavailable, SandboxError."""
        if recipe.name not in self._ready:
            building = asyncio.ensure_future(self._provide(recipe))
            self._building.add(building)
            building.add_done_callback(self._building.discard)
            await asyncio.shield(building)  # a cancelled caller does not spoil it for the others
        return recipe.name

    async def aclose(self) -> None:
        """Wait for nothing more: what is being built goes on at E2B."""
        for worker in list(self._workers):
            worker.stop()
        here = asyncio.get_running_loop()
        await asyncio.gather(*(b for b in self._building if b.get_loop() is here), return_exceptions=True)

    def forget(self, name: str) -> None:
        """It turned out not to be there."""
        self._ready.discard(name)

    async def _provide(self, recipe: Recipe) -> None:
        async with _lock(recipe.name):
            if recipe.name in self._ready:
                return
            deadline = time.monotonic() + self._build_sec
            while (state := await self._state(recipe.name)) == "building":
                if time.monotonic() > deadline:
                    raise SandboxTransient(f"the template {recipe.name} is not ready after {self._build_sec:.0f} s")
                await asyncio.sleep(_POLL_SEC)
            if state != "ready":
                from_template = recipe.image is None or await self.exists(recipe.image)
                await self._build(recipe, from_template=from_template)
            self._ready.add(recipe.name)

    async def _build(self, recipe: Recipe, *, from_template: bool) -> None:
        """In a thread with a loop of its own: reading and packing big files takes seconds."""
        worker = Worker(self._sdk, recipe, self._build_sec, from_template=from_template)
        self._workers.add(worker)
        try:
            await asyncio.to_thread(worker.work)
        finally:
            self._workers.discard(worker)

    async def _state(self, name: str) -> State:
        """How far a template is. Raises: SandboxError."""
        with translated(f"looking for the template {name}", repeatable=True):
            found = await self._ask(f"/templates/aliases/{name}")
            if found is None:
                return "absent"
            detail = await self._ask(f"/templates/{found['templateID']}")
        builds = (detail or {}).get("builds") or [{"status": "ready"}]  # gateways need not tell
        statuses = [build.get("status") for build in builds]
        if "ready" in statuses or "uploaded" in statuses:
            return "ready"
        return "building" if {"building", "waiting"} & set(statuses) else "failed"

    async def _ask(self, path: str) -> dict[str, Any] | None:
        """What the API says; None: it has no such thing, or it is not ours to see. Raises: SandboxError."""
        options = self._sdk.options()
        timeout = aiohttp.ClientTimeout(options["request_timeout"])
        headers = {"X-API-KEY": options["api_key"]}
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=True) as http,
            http.get(f"{self._sdk.api}{path}") as answer,
        ):
            if answer.status in (403, 404, 405):
                return None
            if answer.status >= 500 or answer.status == 429:
                raise SandboxTransient(f"E2B answered {answer.status} for {path}")
            if answer.status >= 400:
                raise SandboxRefused(f"E2B answered {answer.status} for {path}: {(await answer.text())[:500]}")
            return dict(await answer.json())


class Worker:
    """One build, in a thread."""

    def __init__(self, sdk: Sdk, recipe: Recipe, build_sec: float, *, from_template: bool) -> None:
        self._sdk, self._recipe, self._build_sec, self._from_template = sdk, recipe, build_sec, from_template
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def work(self) -> None:
        """Build and wait. Raises: SandboxError, what a layer's functions raise."""
        try:
            with tempfile.TemporaryDirectory(prefix="agentrl-e2b-") as folder:
                copies = _lay_out(Path(folder), self._recipe.layers)
                self._task = self._loop.create_task(self._build(Path(folder), copies))
                if self._stopped:  # while the files were fetched
                    self._task.cancel()
                self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            raise SandboxTransient(f"nobody waits for the template {self._recipe.name} any more") from None
        finally:
            self._loop.close()

    def stop(self) -> None:
        """From another thread."""
        self._stopped = True
        if self._task is not None:
            with suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _build(self, folder: Path, copies: Sequence[Sequence[tuple[str, str]]]) -> None:
        recipe = self._recipe
        start: Any = self._sdk.templates(file_context_path=folder)
        from_template, base = self._from_template, recipe.image or recipe.base
        template = start.from_template(base) if from_template else start.from_image(base)
        for layer, files in zip(recipe.layers, copies, strict=True):
            for name, path in files:
                template = template.copy(name, path, user="root", mode=0o755)
            for command in layer.commands:
                template = template.run_cmd(f"cd /\n{command}", user="root")
        limits = {"cpu_count": recipe.cpus, "memory_mb": recipe.memory_mb}
        given: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
        try:
            await _within(self._build_sec, self._send(template, base, given))
        except TimeoutError:
            raise SandboxTransient(f"{recipe.name} was not built within {self._build_sec:.0f} s") from None

    async def _send(self, template: Any, base: str, limits: Mapping[str, Any]) -> None:
        name = self._recipe.name
        with translated(f"building {name} of {base}", repeatable=True):
            await self._sdk.templates.build(template, alias=name, **limits, **self._sdk.options())


async def _within(limit_sec: float, work: Coroutine[Any, Any, object]) -> None:
    """Await ``work``, which may take a cancellation for a failed request and go on: it is told until it ends. Raises: TimeoutError."""
    task = asyncio.ensure_future(work)
    try:
        if not (await asyncio.wait([task], timeout=limit_sec))[0]:
            raise TimeoutError
        await task
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_TELL_SEC)


def _lay_out(folder: Path, layers: Sequence[Layer]) -> list[list[tuple[str, str]]]:
    """Files below ``folder`` for each layer: (name there, path inside). Blocking: fetches what must be fetched."""
    copies: list[list[tuple[str, str]]] = []
    for number, layer in enumerate(layers):
        found: list[tuple[str, str]] = []
        for path, data in layer.files.items():
            found.append((f"{number}-{len(found)}", path))
            (folder / found[-1][0]).write_bytes(data)
        for path, fetch in layer.fetched.items():
            found.append((f"{number}-{len(found)}", path))
            shutil.copyfile(fetch(), folder / found[-1][0])
        for name, _ in found:
            (folder / name).chmod(0o755)
        copies.append(found)
    return copies


@asynccontextmanager
async def _lock(name: str) -> AsyncIterator[None]:
    """One builder of ``name`` at a time among the processes and loops of this host."""
    folder = Path(tempfile.gettempdir(), f"agentrl-e2b-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(folder / f"{name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_SEC)
        yield
    finally:
        os.close(fd)
