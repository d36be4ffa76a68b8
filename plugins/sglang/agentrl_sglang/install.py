"""Puts SGLang into a virtual environment of its own: its exact pins of torch and transformers fit nobody else's.

``python -m agentrl_sglang.install`` does it ahead of time. On machines with NVIDIA GPUs it is a plain ``pip install``;
elsewhere a set of packages that is known to run on a CPU, with stand-ins for those that exist for CUDA only. An
environment that somebody else made is never touched.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agentrl.api import EngineError, environment, start_leashed
from agentrl_sglang.settings import SGLangSettings

VERSION = "0.5.23"
_DATA = Path(__file__).parent / "data"
_STAND_INS = {"sgl_kernel": "0.0.0", "torchvision": "0.28.0", "torchaudio": "2.13.0"}
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE")
_INHERITED_PREFIXES = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_UNFINISHED = "unfinished"


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def venv_path(settings: SGLangSettings) -> Path:
    """The environment that :func:`install` makes or finds."""
    return settings.venv or settings.cache_dir / f"sglang-{VERSION}-{'gpu' if has_gpu() else 'cpu'}"


def is_installed(venv: Path) -> bool:
    """Whether ``venv`` can be used: ours and complete, or made by somebody else."""
    if not (venv / "bin" / "python").exists():
        return False
    marker = _marker(venv)
    return not marker.exists() or marker.read_text() == _digest()


async def install(settings: SGLangSettings) -> Path:
    """Install unless it is there → the environment. Says on stderr what takes so long. Safe to kill and to run twice.

    Raises: EngineError with the end of pip's output.
    """
    venv = venv_path(settings)
    if is_installed(venv):
        return venv
    venv.parent.mkdir(parents=True, exist_ok=True)
    async with _alone(venv.with_name(f"{venv.name}.lock")):
        if not is_installed(venv):
            await _install(venv)
    return venv


async def _install(venv: Path) -> None:
    started, log_path = time.monotonic(), venv.with_name(f"{venv.name}.log")
    log_path.unlink(missing_ok=True)
    _say(f"installing SGLang {VERSION} into {venv}: once, several minutes and gigabytes (log: {log_path})")
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir()
    _marker(venv).write_text(_UNFINISHED)
    await _run(log_path, sys.executable, "-m", "venv", str(venv))
    # Wheels only: nothing that was downloaded is executed here.
    pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "--only-binary=:all:", "--progress-bar=off")
    if has_gpu():
        await _run(log_path, *pip, "-r", str(_DATA / "requirements-gpu.txt"))
    else:
        await _run(log_path, *pip, "-r", str(_DATA / "requirements-cpu.txt"))
        _say(f"  the packages below SGLang are there ({time.monotonic() - started:.0f} s)")
        await _run(log_path, *pip, "--no-deps", f"sglang=={VERSION}")
        _write_stand_ins(next(venv.glob("lib/python3*/site-packages")))
    _marker(venv).write_text(_digest())
    _say(f"  SGLang is installed ({time.monotonic() - started:.0f} s)")


async def _run(log_path: Path, *argv: str) -> None:
    variables = environment().items()
    env = {name: value for name, value in variables if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)}
    process = await start_leashed(argv, env=env, log_path=log_path)
    try:
        code = await process.wait()
    finally:
        await process.stop()
    if code:
        raise EngineError(
            f"SGLang could not be installed ({' '.join(argv)}); the end of {log_path}:\n{process.log_tail()}"
        )


def _write_stand_ins(site_packages: Path) -> None:
    shutil.copyfile(_DATA / "stand_ins.py", site_packages / "agentrl_stand_ins.py")
    for name, version in _STAND_INS.items():
        package, metadata = site_packages / name, site_packages / f"{name}-{version}.dist-info"
        package.mkdir()
        metadata.mkdir()
        text = f'import agentrl_stand_ins\n\n__version__ = "{version}"\nagentrl_stand_ins.install(__name__)\n'
        (package / "__init__.py").write_text(text)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _marker(venv: Path) -> Path:
    return venv / "installed-by-agentrl"


def _digest() -> str:
    """Of everything that decides what is installed."""
    files = sorted(file for file in _DATA.iterdir() if file.is_file())
    return hashlib.sha256(VERSION.encode() + b"".join(file.read_bytes() for file in files)).hexdigest()


@asynccontextmanager
async def _alone(lock: Path) -> AsyncIterator[None]:
    """One installation at a time; the kernel frees the lock of a killed process."""
    with lock.open("w") as stream:
        await asyncio.to_thread(fcntl.flock, stream, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(install(SGLangSettings()))}\n")
