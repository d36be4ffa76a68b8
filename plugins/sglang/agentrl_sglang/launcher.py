"""Starts a real SGLang server on a leash and waits until it serves."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from agentrl.api import EngineError, EngineSpec, Leashed, environment, start_leashed
from agentrl_sglang.install import has_gpu, install, is_installed, venv_path
from agentrl_sglang.settings import SGLangSettings

_POLL_SEC = 0.25
# All that it inherits: it has no business with anybody's keys.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "CUDA_VISIBLE_DEVICES", "CUDA_HOME")
_INHERITED_PREFIXES = ("NCCL_", "SGLANG_", "GLOO_")
_CPU_FLAGS = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
    *("--disable-overlap-schedule", "--disable-cuda-graph", "--mem-fraction-static", "0.1"),
    # Without it the scheduler burns a core while idle, and the trainer needs that one.
    "--sleep-on-idle",
)


@dataclass(frozen=True, slots=True)
class RunningSGLang:
    """``url``: root of its HTTP service."""

    url: str
    process: Leashed

    async def aclose(self) -> None:
        """Stop it with all its workers; idempotent."""
        await self.process.stop()


class SGLangLauncher:
    """The launcher that is registered as ``sglang``."""

    def __init__(self, settings: SGLangSettings) -> None:
        self._settings = settings

    async def start(self, spec: EngineSpec) -> RunningSGLang:
        """See :meth:`agentrl.api.EngineLauncher.start`. Installs SGLang first if it is not there."""
        venv = await install(self._settings)
        with _reserved_port() as port:
            process = await start_leashed(
                self._command(venv, spec, port), env=self._environment(venv), log_path=spec.log_path
            )
            running = RunningSGLang(f"http://127.0.0.1:{port}", process)
            try:
                await self._wait(running)
            except BaseException:
                await running.aclose()
                raise
        return running

    async def probe(self) -> str | None:
        """See :meth:`agentrl.api.EngineLauncher.probe`."""
        venv = venv_path(self._settings)
        if not is_installed(venv):
            return None  # it is installed on the first start
        if not list(venv.glob("lib/python3*/site-packages/sglang")):
            return f"{venv} holds no SGLang; run: {venv}/bin/pip install sglang, or unset AGENTRL_SGLANG_VENV"
        return None

    def _command(self, venv: Path, spec: EngineSpec, port: int) -> list[str]:
        options: dict[str, object] = {
            "--model-path": spec.model_dir,
            "--host": "127.0.0.1",
            "--port": port,
            "--dtype": spec.dtype,
            "--context-length": spec.context_tokens,
            "--random-seed": spec.seed,
        }
        if not has_gpu():
            options["--max-total-tokens"] = max(self._settings.kv_tokens, spec.context_tokens)
        flags = [text for option, value in options.items() for text in (option, str(value))]
        flags += () if has_gpu() else _CPU_FLAGS
        return [str(venv / "bin" / "python"), "-m", "sglang.launch_server", *flags, *shlex.split(self._settings.flags)]

    def _environment(self, venv: Path) -> dict[str, str]:
        variables = environment().items()
        env = {name: value for name, value in variables if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)}
        env["PATH"] = f"{venv / 'bin'}:{env.get('PATH', '/usr/bin:/bin')}"
        env |= {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        if not has_gpu():
            env |= {
                "SGLANG_USE_CPU_ENGINE": "1",
                "OMP_NUM_THREADS": str(self._settings.threads),
                "OMP_WAIT_POLICY": "passive",
            }
        return env

    async def _wait(self, running: RunningSGLang) -> None:
        ended = asyncio.create_task(running.process.wait())
        try:
            async with asyncio.timeout(self._settings.start_sec), aiohttp.ClientSession() as http:
                while not await _healthy(http, running.url):
                    await asyncio.wait([ended], timeout=_POLL_SEC)
                    if ended.done():
                        raise EngineError(_failure(f"ended with code {ended.result()} before it served", running))
        except TimeoutError as error:
            raise EngineError(_failure(f"did not serve within {self._settings.start_sec:g} s", running)) from error
        finally:
            ended.cancel()


async def _healthy(http: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with http.get(f"{url}/health", timeout=aiohttp.ClientTimeout(total=10)) as response:
            return response.status == 200
    return False


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """A port that the kernel gives to nobody else meanwhile: only who names it and sets SO_REUSEADDR, as servers do, can bind it too."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def _failure(what: str, running: RunningSGLang) -> str:
    return f"SGLang {what}; the end of {running.process.log_path}:\n{running.process.log_tail()}"
