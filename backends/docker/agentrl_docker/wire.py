"""Commands and files of one container, each tried once: what :class:`agentrl.api.WiredSandbox` builds on."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from pathlib import PurePosixPath

from aiodocker import DockerError
from aiodocker.containers import DockerContainer
from aiodocker.execs import Exec

from agentrl.api import ANSWER_END, SandboxError, SandboxGone, SandboxRefused
from agentrl_docker.archive import pack, unpack
from agentrl_docker.engine import meaning, speaking

OUTPUT_CAP = 1 << 20
FILE_SEC = 600.0
_POLL_SEC = 0.02
_POLLS = 250
_DEATHBED_POLLS = 15
_KILLED = 137
_NO_USER = "unable to find user"


class DockerWire:
    """Implements :class:`agentrl.api.Wire`. ``user``: who commands run as when nobody says otherwise; empty: the container's."""

    def __init__(self, container: DockerContainer, name: str, *, user: str = "") -> None:
        self._container, self.name, self._user = container, name, user

    async def run(
        self, script: str, *, env: Mapping[str, str], timeout_sec: float, user: str | None
    ) -> tuple[int, bytes]:
        """See :meth:`agentrl.api.Wire.run`."""
        with speaking(f"a command in {self.name}"):
            async with asyncio.timeout(timeout_sec):
                execution = await self._prepared(script, env, user or self._user)
                try:
                    said = await _output(execution)
                    if said.endswith(ANSWER_END):
                        return 0, said
                    code, pid = await _end(execution)
                except DockerError as error:
                    raise await self._lost(error) from error
                if not pid and code in (126, 127):
                    raise self._never_ran(said.decode(errors="replace").strip())
                if code == _KILLED and await self._ends():
                    raise self._gone()
                return code, said

    async def put(self, path: str, data: bytes) -> None:
        """See :meth:`agentrl.api.Wire.put`."""
        where = PurePosixPath(path)
        with speaking(f"writing {path} in {self.name}"):
            async with asyncio.timeout(FILE_SEC):
                try:
                    archive = await asyncio.to_thread(pack, where.name, data)
                    await self._container.put_archive(str(where.parent), archive)  # type: ignore[no-untyped-call]
                except DockerError as error:
                    raise await self._failure(error, f"writing {path}") from error

    async def get(self, path: str) -> bytes:
        """See :meth:`agentrl.api.Wire.get`."""
        with speaking(f"reading {path} in {self.name}"):
            async with asyncio.timeout(FILE_SEC):
                try:
                    return unpack(await self._container.get_archive(path))
                except DockerError as error:
                    raise await self._failure(error, f"reading {path}") from error

    async def _prepared(self, script: str, env: Mapping[str, str], user: str) -> Exec:
        argv = ["sh", "-c", script]
        try:
            return await self._container.exec(argv, stderr=False, user=user, environment=env, workdir="/")
        except DockerError as error:
            raise await self._failure(error, "a command") from error

    async def _lost(self, error: DockerError) -> SandboxError:
        """It was asked for, so it may have run, unless the engine found nobody to run it."""
        if not await self._runs():
            return self._gone()
        if _NO_USER in error.message:
            return self._never_ran(error.message)
        return SandboxError(f"the end of a command in {self.name} is unknown: {error.message}")

    def _never_ran(self, words: str) -> SandboxError:
        """``words``: the engine's own."""
        return (SandboxRefused if _NO_USER in words else SandboxError)(f"no command in {self.name}: {words}")

    async def _failure(self, error: DockerError, what: str) -> SandboxError:
        """What a refusal means: 404 and 409 may be about the container or about what was asked."""
        if error.status in (404, 409, 500) and not await self._runs():
            return self._gone()
        if error.status in (404, 409):
            return SandboxError(f"{what} in {self.name}: {error.message}")
        return meaning(error, f"{what} in {self.name}")

    async def _ends(self) -> bool:
        """Whether the container is going, too: its processes die first."""
        for _ in range(_DEATHBED_POLLS):
            if not await self._runs():
                return True
            await asyncio.sleep(_POLL_SEC)
        return False

    async def _runs(self) -> bool:
        try:
            state = (await self._container.show())["State"]
        except DockerError as error:
            if error.status == 404:
                return False
            raise
        return bool(state["Running"]) and not state.get("Dead")

    def _gone(self) -> SandboxGone:
        return SandboxGone(f"{self.name} is not running any more: it was deleted, or its lifetime is over")


async def _output(execution: Exec) -> bytes:
    said = io.BytesIO()
    async with execution.start(detach=False) as stream:
        while (message := await stream.read_out()) is not None:
            if said.tell() + len(message.data) > OUTPUT_CAP:
                raise SandboxError("a command said more than it should: the sandbox's shell is not what it was")
            said.write(message.data)
    return said.getvalue()


async def _end(execution: Exec) -> tuple[int, int]:
    """Exit code and process id. The engine may learn of the end a little later than we do. Raises: SandboxError."""
    for poll in range(_POLLS):
        state = await execution.inspect()
        if not state["Running"] and state["ExitCode"] is not None:
            return state["ExitCode"], state["Pid"]
        await asyncio.sleep(min(_POLL_SEC, 0.001 * 2**poll))  # Mostly it is a matter of milliseconds.
    raise SandboxError("the engine does not know how a command ended")
