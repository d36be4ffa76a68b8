"""Templates and how they are built: the steps of a build really run, in a guest whose writes become the template."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentrl.testing.faults import Faults
from agentrl.testing.guest import Guest, GuestGone, Host
from agentrl.testing.loopback_e2b.errors import ApiError
from agentrl.testing.loopback_e2b.machines import ACCOUNTS

_WORK = "/tmp/.build"


@dataclass(slots=True)
class Template:
    """``layers``: what its machines are made of, None as long as no build of it is ready; ``cpus``, ``memory_mb``: 0 if nobody
    asked for any."""

    names: list[str]
    cpus: int = 0
    memory_mb: int = 0
    layers: tuple[Path, ...] | None = None
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = "user"
    id: str = field(default_factory=lambda: f"t{secrets.token_hex(8)}")


@dataclass(slots=True)
class Build:
    """One attempt to make a template ready."""

    template: Template
    status: str = "waiting"
    reason: str = ""
    step: str = ""
    logs: list[dict[str, str]] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def log(self, text: str) -> None:
        """Say something to whoever polls."""
        self.logs.append({"timestamp": datetime.now(UTC).isoformat(), "message": text, "level": "info"})

    def report(self, offset: int) -> dict[str, Any]:
        """What a poll is answered."""
        answer: dict[str, Any] = {
            "templateID": self.template.id,
            "buildID": self.id,
            "status": self.status,
            "logs": [],
            "logEntries": self.logs[offset : offset + 100],
        }
        if self.reason:
            answer["reason"] = {"message": self.reason, "step": self.step}
        return answer


class BuildFailed(Exception):
    """A step did not work."""


class Builder:
    """All templates. ``missing``: names of images that no registry has."""

    def __init__(self, host: Host, folder: Path, faults: Faults) -> None:
        self._host, self._folder, self._faults = host, folder, faults
        self.missing: set[str] = set()
        self.templates: list[Template] = [Template(["base"], layers=(), id="base")]
        self.builds: dict[str, Build] = {}
        self._archives: dict[str, bytes] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, name: str) -> Template | None:
        """By id or name, with or without a tag."""
        bare = name.partition(":")[0]
        return next((t for t in self.templates if t.id == bare or bare in t.names), None)

    def request(self, body: Mapping[str, Any]) -> Build:
        """A new build of a new or known template."""
        name = str(body.get("name") or body.get("alias") or "").partition(":")[0]
        if not name:
            raise ApiError(400, "a template needs a name")
        template = self.find(name)
        if template is None:
            template = Template([name])
            self.templates.append(template)
        template.cpus = body.get("cpuCount") or template.cpus
        template.memory_mb = body.get("memoryMB") or template.memory_mb
        build = Build(template)
        self.builds[build.id] = build
        return build

    def store(self, digest: str, archive: bytes) -> None:
        """Keep the files of COPY steps."""
        self._archives[digest] = archive

    def has(self, digest: str) -> bool:
        """Whether these files are here."""
        return digest in self._archives

    def start(self, build: Build, body: Mapping[str, Any]) -> None:
        """Begin to build."""
        build.status = "building"
        task = asyncio.create_task(self._build(build, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop what is being built."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _build(self, build: Build, body: Mapping[str, Any]) -> None:
        if self._faults.take("prepare", "stuck") is not None:
            await asyncio.Event().wait()
        try:
            if (fault := self._faults.take("prepare", "failed")) is not None:
                raise BuildFailed(fault.message)
            await self._run_steps(build, self._base(body), body.get("steps", []))
        except (BuildFailed, OSError, GuestGone) as error:
            build.status, build.reason = "error", str(error)
        else:
            build.status = "ready"

    def _base(self, body: Mapping[str, Any]) -> Template:
        if body.get("startCmd"):
            raise BuildFailed("start commands are not in this loopback server")
        image = body.get("fromImage")
        if image is not None:
            if image in self.missing:
                raise BuildFailed(f"error requesting docker image: manifest unknown: {image}")
            return self.templates[0]
        base = self.find(body.get("fromTemplate", ""))
        if base is None or base.layers is None:
            raise BuildFailed(f"template {body.get('fromTemplate')!r} not found")
        return base

    async def _run_steps(self, build: Build, base: Template, steps: Sequence[Mapping[str, Any]]) -> None:
        scene = Template([], env=dict(base.env), workdir=base.workdir, user=base.user)
        guest = await self._host.start(layers=base.layers or ())
        try:
            for number, step in enumerate(steps, start=1):
                build.step = str(number)
                build.log(f"[{number}/{len(steps)}] {step['type']} {' '.join(step.get('args', []))[:200]}")
                await self._step(build, scene, guest, step)
            layers = await guest.snapshot(self._folder / build.id)
        finally:
            await guest.destroy()
        template = build.template
        template.layers, template.env = layers, scene.env
        template.workdir, template.user = scene.workdir, scene.user

    async def _step(self, build: Build, scene: Template, guest: Guest, step: Mapping[str, Any]) -> None:
        args = step.get("args", [])
        match step["type"]:
            case "RUN":
                user = args[1] if len(args) > 1 and args[1] else scene.user
                await _run(build, scene, guest, args[0], user)
            case "COPY":
                await self._copy(build, scene, guest, step)
            case "ENV":
                scene.env.update(zip(args[::2], args[1::2], strict=True))
            case "WORKDIR":
                scene.workdir = args[0]
            case "USER":
                scene.user = args[0]
            case other:
                raise BuildFailed(f"unknown step {other}")

    async def _copy(self, build: Build, scene: Template, guest: Guest, step: Mapping[str, Any]) -> None:
        source, target, owner, mode = [*step["args"], "", "", ""][:4]
        archive = self._archives.get(step.get("filesHash", ""))
        if archive is None:
            raise BuildFailed(f"the files of {source} were not uploaded")
        await guest.write(f"{_WORK}/archive", archive)
        owner = owner or scene.user
        quoted = shlex.quote(target)
        script = [
            f"mkdir -p {_WORK}/files && tar --no-same-owner -xf {_WORK}/archive -C {_WORK}/files && cd {_WORK}/files",
            f"mkdir -p $(dirname {quoted}x) && cp -r {shlex.quote(source)} {quoted}",
            f"chmod -R {mode} {quoted}" if mode else "true",
            f"chown -R {owner} {quoted}" if guest.two_users else "true",
            f"rm -rf {_WORK}",
        ]
        await _run(build, scene, guest, " && ".join(script), "root")


async def _run(build: Build, scene: Template, guest: Guest, command: str, user: str) -> None:
    home = ACCOUNTS.get(user, ACCOUNTS["root"]).home
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "USER": user, "LOGNAME": user, **scene.env}
    argv = ["/bin/bash", "-l", "-c", command]
    process = await guest.spawn(argv, env=env, cwd=scene.workdir or home, user=user)
    code, out, err = await process.output()
    for line in (out + err).decode(errors="replace").splitlines():
        build.log(line)
    if code:
        tail = (out + err)[-1000:].decode(errors="replace")
        raise BuildFailed(f"failed to run command {command[:200]!r}: exit status {code}\n{tail}")
