"""Makes local sandboxes: state folders, bubblewrap, control groups, and the list of what exists."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agentrl.api import (
    Capabilities,
    ImageUnavailable,
    Layer,
    Resources,
    SandboxError,
    SandboxGone,
    SandboxInfo,
    SandboxRefused,
    SandboxSpec,
    SettingsError,
    write_layer,
)
from agentrl_local.boot import Boot, start
from agentrl_local.cgroups import Cgroups, find_cgroups, make_groups, plan_groups
from agentrl_local.confine import INSIDE, PACKAGE, bwrap_argv, find_bwrap, make_folders, server_argv
from agentrl_local.images import HOST, PREFIX, Images
from agentrl_local.records import Record, destroy, make_recorded, read_record, start_time, write_record
from agentrl_local.sandbox import LocalSandbox
from agentrl_local.settings import LocalSettings
from agentrl_local.view import SYSTEM_PATH, View, survey

logger = logging.getLogger(__name__)

BUILD_SEC = 1800.0
OUTPUT_CAP = 10 << 20
DEFAULT_PIDS = 4096


class LocalBackend:
    """Implements :class:`agentrl.api.SandboxBackend` on this machine, for root and for ordinary users.

    A sandbox belongs to the process that made it and dies with it: :meth:`attach` from another process raises SandboxGone, while
    :meth:`list` and :meth:`delete` work from everywhere. Limits named in ``capabilities.resources`` hold; others are not enforced.
    """

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._state = _state_folder(settings)
        self._images = Images(self._state / "images")
        self._cgroups = Cgroups({}, 1) if settings.unconfined else find_cgroups()
        self._sandboxes: dict[str, LocalSandbox] = {}
        self._bwrap: Path | None = None
        self._survey: asyncio.Task[View] | None = None
        if settings.unconfined:
            logger.warning(
                "SWE_LOCAL_UNCONFINED is set: commands run as plain processes of this host, NOT isolated at all"
            )

    @property
    def capabilities(self) -> Capabilities:
        """One user; limits as control groups allow, else the kernel's process limit (it exempts root)."""
        by_process = frozenset({"pids"} if os.geteuid() != 0 and not self._settings.unconfined else ())
        return Capabilities(
            users=False,
            network_policy=not self._settings.unconfined,
            resources=self._cgroups.resources | by_process,
            snapshot=False,
            reach=frozenset({"loopback"}),
        )

    async def create(self, spec: SandboxSpec, *, labels: Mapping[str, str], lifetime_sec: float) -> LocalSandbox:
        """See :meth:`agentrl.api.SandboxBackend.create`. ``image``: None, ``host``, or what :meth:`prepare` returned."""
        layers = self._images.layers(self._image(spec.image))
        sandbox_id = f"local-{secrets.token_hex(8)}"
        state = self._state / "sandboxes" / sandbox_id
        record = Record(sandbox_id, dict(labels), time.time())
        boot: Boot | None = None
        try:
            make_recorded(state, record)
            argv = await self._argv(spec, state, layers)
            boot = self._start(argv, spec, record, state)
            channel = await boot.connect(self._carried(spec))
            _, hello = channel.send(await self._hello(spec, state, lifetime_sec))
            await hello
        except BaseException as error:
            await asyncio.shield(boot.discard() if boot else asyncio.to_thread(destroy, state))
            if isinstance(error, OSError):
                raise SandboxError(f"the sandbox could not be started: {error}") from error
            raise
        sandbox = LocalSandbox(sandbox_id, boot, channel, lambda ended: self._sandboxes.pop(ended, None))
        self._sandboxes[sandbox_id] = sandbox
        return sandbox

    async def attach(self, sandbox_id: str) -> LocalSandbox:
        """A sandbox of this process. Raises: SandboxGone, also for one of another process: it cannot be shared."""
        try:
            return self._sandboxes[sandbox_id]
        except KeyError:
            raise SandboxGone(f"{sandbox_id} is not a sandbox of this process") from None

    async def list(self, labels: Mapping[str, str]) -> Sequence[SandboxInfo]:
        """Sandboxes of every process of this user that left a trace here, alive or not."""
        home = self._state / "sandboxes"
        records = map(read_record, home.glob("local-*"))
        return [
            SandboxInfo(record.id, record.labels, record.created_at)
            for record in records
            if record is not None and labels.items() <= record.labels.items()
        ]

    async def delete(self, sandbox_id: str) -> None:
        """Kill and remove; whose it was does not matter."""
        if sandbox_id in self._sandboxes:
            await self._sandboxes[sandbox_id].close()
        elif sandbox_id == Path(sandbox_id).name and sandbox_id.startswith("local-"):
            await asyncio.to_thread(destroy, self._state / "sandboxes" / sandbox_id)

    async def prepare(self, image: str | None, resources: Resources, layers: Sequence[Layer]) -> str | None:
        """Bake each layer in a sandbox with the host's network and keep what it wrote, in ``SWE_LOCAL_STATE_DIR``."""
        if layers and self._settings.unconfined:
            raise SandboxRefused("layers would be installed on the host itself: not with SWE_LOCAL_UNCONFINED")
        for layer in layers:
            below, image = image, self._images.name(self._image(image), layer)
            if not self._images.exists(image):
                async with self._images.lock(image):
                    if not self._images.exists(image):
                        await self._bake(below, resources, layer, image)
        return image

    async def aclose(self) -> None:
        """Close this process's sandboxes: they could not outlive it in any useful way."""
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._sandboxes.values())))

    async def probe(self) -> str | None:
        """Boot one and say what stood in the way."""
        try:
            sandbox = await self.create(SandboxSpec(), labels={"agentrl-probe": "1"}, lifetime_sec=60)
        except (SandboxError, SettingsError, OSError) as error:
            return str(error)
        await sandbox.close()
        return None

    # -------------------------------------------------------------------------------------------------- the parts

    def _image(self, image: str | None) -> str | None:
        if image is None or image in HOST:
            return None
        if image.startswith(PREFIX):
            return image
        if self._settings.ignore_image:
            return None
        raise ImageUnavailable(
            f"the local backend runs no container images ({image}): choose another SWE_SANDBOX, "
            "or set SWE_LOCAL_IGNORE_IMAGE=1 to use this host's own files instead"
        )

    async def _bake(self, below: str | None, resources: Resources, layer: Layer, name: str) -> None:
        spec = SandboxSpec(image=below, resources=resources, network=True)
        sandbox = await self.create(spec, labels={"agentrl-layer": layer.name}, lifetime_sec=BUILD_SEC)
        try:
            await write_layer(sandbox, layer)
            for command in layer.commands:
                result = await sandbox.exec(command, timeout_sec=BUILD_SEC, cwd="/")
                if not result.ok:
                    tail = (result.stdout + result.stderr)[-2000:].decode(errors="replace")
                    raise SandboxError(f"layer {layer.name}: {command!r} ended with {result.exit_code}: {tail}")
            await sandbox.close_into(lambda state: self._images.keep(state, name, self._image(below)))
        finally:
            await sandbox.close()

    async def _view(self) -> View:
        """Surveyed once; a cancelled caller does not spoil it for the others."""
        if self._survey is None or (self._survey.done() and self._survey.exception() is not None):
            folders = self._settings.folders.split()
            self._survey = asyncio.create_task(asyncio.to_thread(survey, folders, self._state))
        return await asyncio.shield(self._survey)

    async def _argv(self, spec: SandboxSpec, state: Path, layers: Sequence[Path]) -> Sequence[str]:
        ports = self._carried(spec)
        if self._settings.unconfined:
            (state / "home").mkdir()
            return server_argv(sys.executable, str(PACKAGE.parent), ports)
        self._bwrap = self._bwrap or await asyncio.to_thread(find_bwrap)
        if self._bwrap is None:
            raise SandboxRefused("no bubblewrap 0.11 here: pip install 'agentrl[local]'")
        view = await self._view()
        make_folders(state, view)  # not in a thread: cancelled, that would go on while we clean up
        argv = bwrap_argv(self._bwrap, state, view, layers, network=spec.network)
        return [*argv, *server_argv(view.python, INSIDE, ports)]

    def _start(self, argv: Sequence[str], spec: SandboxSpec, record: Record, state: Path) -> Boot:
        resources = _with_defaults(spec.resources)
        planned = plan_groups(self._cgroups, record.id, resources)
        groups = tuple(dict.fromkeys(planned.values()))  # version 2 has one for all controllers
        record = replace(record, groups=tuple(map(str, groups)))
        write_record(state, record)
        make_groups(planned, self._cgroups.version, resources)
        boot = start(argv, groups=groups, state=state, cwd=state)
        write_record(state, replace(record, pid=boot.process.pid, started=start_time(boot.process.pid) or 0))
        return boot

    def _carried(self, spec: SandboxSpec) -> tuple[int, ...]:
        """Ports that need carrying: with the host's own network they are simply there."""
        return () if spec.network or self._settings.unconfined else spec.reach

    async def _hello(self, spec: SandboxSpec, state: Path, lifetime_sec: float) -> dict[str, object]:
        if self._settings.unconfined:
            path, home = ":".join(SYSTEM_PATH), str(state / "home")
        else:
            path, home = (await self._view()).path, "/root"
        env = {"PATH": path, "HOME": home, "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
        return {
            "do": "hello",
            "env": {**env, **spec.env},
            "limits": self._process_limits(spec),
            "output_cap": OUTPUT_CAP,
            "lifetime_sec": lifetime_sec,
        }

    def _process_limits(self, spec: SandboxSpec) -> dict[str, int]:
        """What each command gets where control groups cannot do it. Memory is per process, so it is not declared."""
        limits, wanted = {}, _with_defaults(spec.resources)
        if "pids" not in self._cgroups.parents and wanted.pids and not self._settings.unconfined:
            limits["RLIMIT_NPROC"] = wanted.pids
        if "memory" not in self._cgroups.parents and wanted.memory_mb:
            limits["RLIMIT_DATA"] = wanted.memory_mb << 20
        return limits


def _with_defaults(resources: Resources) -> Resources:
    return resources if resources.pids else replace(resources, pids=DEFAULT_PIDS)


def _state_folder(settings: LocalSettings) -> Path:
    """Ours alone, and outside of what sandboxes see. Raises: SettingsError."""
    default = Path(tempfile.gettempdir(), f"agentrl-local-{os.geteuid()}")
    state = Path(settings.state_dir).absolute() if settings.state_dir else default
    if any(state.is_relative_to(folder) for folder in settings.folders.split()):
        raise SettingsError(
            f"SWE_LOCAL_STATE_DIR={state} lies inside SWE_LOCAL_FOLDERS: sandboxes would see each other"
        )
    with suppress(FileExistsError):
        state.mkdir(parents=True, mode=0o700)
    info = state.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise SettingsError(f"{state} is not a folder of ours: set SWE_LOCAL_STATE_DIR to one")
    state.chmod(0o700)
    return state
