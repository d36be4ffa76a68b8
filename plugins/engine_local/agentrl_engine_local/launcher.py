"""Starts the local engine as a process of its own, on a leash."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from dataclasses import dataclass

from agentrl.api import EngineError, EngineSpec, Leashed, environment, start_leashed
from agentrl_engine_local.settings import LocalEngineSettings

_NEEDS = ("torch", "safetensors", "tokenizers")
# All that it inherits: it has no business with anybody's keys.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class RunningLocalEngine:
    """``url``: root of its HTTP service."""

    url: str
    process: Leashed

    async def aclose(self) -> None:
        """Stop it; idempotent."""
        await self.process.stop()


class LocalEngine:
    """The launcher that is registered as ``local``."""

    def __init__(self, settings: LocalEngineSettings) -> None:
        self._settings = settings

    async def start(self, spec: EngineSpec) -> RunningLocalEngine:
        """See :meth:`agentrl.api.EngineLauncher.start`."""
        reader, writer = os.pipe()
        try:
            process = await start_leashed(
                self._command(spec, writer), env=self._environment(), log_path=spec.log_path, pass_fds=(writer,)
            )
        finally:
            os.close(writer)
        try:
            return RunningLocalEngine(f"http://127.0.0.1:{await self._port(reader, process)}", process)
        except BaseException:
            await process.stop()
            raise

    async def probe(self) -> str | None:
        """See :meth:`agentrl.api.EngineLauncher.probe`."""
        missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
        return f"{', '.join(missing)} is missing; run: pip install 'agentrl[engine-local]'" if missing else None

    def _command(self, spec: EngineSpec, ready_fd: int) -> list[str]:
        options = {
            "--model": spec.model_dir,
            "--context": spec.context_tokens,
            "--dtype": spec.dtype,
            "--seed": spec.seed,
            "--slots": self._settings.slots,
            "--threads": self._settings.threads,
            "--ready-fd": ready_fd,
        }
        flags = [text for option, value in options.items() for text in (option, str(value))]
        return [sys.executable, "-m", "agentrl_engine_local.server", *flags]

    def _environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in environment().items() if name in _INHERITED},
            "OMP_NUM_THREADS": str(self._settings.threads),
            # Threads that wait for each other sleep instead of spinning: the trainer and the sandboxes share these cores.
            "OMP_WAIT_POLICY": "passive",
            "PYTHONUNBUFFERED": "1",
        }

    async def _port(self, reader: int, process: Leashed) -> int:
        """The line that the server writes when it serves; nothing comes when it dies."""
        stream = asyncio.StreamReader()
        with os.fdopen(reader, "rb", 0) as pipe:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stream), pipe
            )
            try:
                line = await asyncio.wait_for(stream.readline(), self._settings.start_sec)
            except TimeoutError as error:
                raise EngineError(self._failure("did not load its model in time", process)) from error
            finally:
                transport.close()
        if not line:
            raise EngineError(self._failure("ended before it served", process))
        return int(line)

    def _failure(self, what: str, process: Leashed) -> str:
        return f"the local engine {what}; the end of {process.log_path}:\n{process.log_tail()}"
