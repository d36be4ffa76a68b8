"""A real Docker engine for tests: one for a run of pytest, whatever number of workers it has, with an image made of this host.

It is started by ``scripts/docker_engine.sh`` when the first test asks for it and stopped when the run ends, also when that is
killed. ``TEST_DOCKER_HOST`` names one to use instead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from docker_rootfs import import_rootfs

from agentrl.api import Sandbox

IMAGE = "agentrl-test:1"
LABELS = {"agentrl-run": "test"}
SCRIPT = Path(__file__).parents[2] / "scripts" / "docker_engine.sh"


class NoEngine(Exception):
    """There is none, and none can be started; says why."""


def docker_host(config: pytest.Config) -> str:
    """The ``DOCKER_HOST`` of an engine that has :data:`IMAGE`. Raises: NoEngine; of one that was named but cannot be used, what
    went wrong: whoever names one wants these tests to run."""
    home, named = _home(config), os.environ.get("TEST_DOCKER_HOST")
    home.mkdir(exist_ok=True)
    with _lock(home):
        host, refusal = home / "host", home / "refusal"
        if refusal.exists():
            raise NoEngine(refusal.read_text())
        if not host.exists():
            try:
                started = named or _start(home, _owner(config))
                _provide_image(started)
            except (NoEngine, OSError, subprocess.CalledProcessError) as error:
                if named:
                    raise
                refusal.write_text(str(error))
                raise NoEngine(str(error)) from error
            host.write_text(started)
        return host.read_text()


def stop(config: pytest.Config) -> None:
    """End what this run started, if it did. Workers leave that to their controller."""
    home = _home(config)
    if not hasattr(config, "workerinput") and home.exists():
        if (home / "run").exists():
            subprocess.run([SCRIPT, "stop", home / "run", home / "data"], check=True)
        shutil.rmtree(home)


def _start(home: Path, owner: int) -> str:
    if os.geteuid() != 0:
        raise NoEngine("an engine is started by root only, and TEST_DOCKER_HOST names none")
    if shutil.which("dpkg-query") is None:
        raise NoEngine("the engine's image is made of Debian packages, which this machine does not have")
    command = [SCRIPT, "start", home / "run", home / "data", str(owner)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise NoEngine(f"no Docker engine could be started: {done.stderr[-1000:]}")
    return done.stdout.strip()


def _provide_image(host: str) -> None:
    here = subprocess.run(["docker", "--host", host, "image", "inspect", IMAGE], capture_output=True)
    if here.returncode != 0:
        import_rootfs(IMAGE, host)


def _owner(config: pytest.Config) -> int:
    """The process whose end is the end of the run."""
    return os.getppid() if hasattr(config, "workerinput") else os.getpid()


def _home(config: pytest.Config) -> Path:
    """Short, for a socket lies in it; not that of an earlier run, which may have been killed, with the same number."""
    owner = _owner(config)
    began = Path(f"/proc/{owner}/stat").read_text().rpartition(")")[2].split()[19]
    return Path(tempfile.gettempdir(), f"agentrl-engine-{owner}-{began}")


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    with (home / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def docker(host: str, *words: str) -> str:
    """What the command line client says. Raises: CalledProcessError."""
    return subprocess.run(["docker", "--host", host, *words], capture_output=True, text=True, check=True).stdout.strip()


def derive(host: str, name: str, *changes: str) -> str:
    """An image like :data:`IMAGE` but for ``changes``, lines of a Dockerfile; its name."""
    container = docker(host, "create", IMAGE)
    try:
        lines = [word for change in changes for word in ("--change", change)]
        docker(host, "commit", *lines, container, name)
    finally:
        docker(host, "rm", container)
    return name


async def said(sandbox: Sandbox, command: str, **options: Any) -> str:
    """Both streams of ``command``."""
    result = await sandbox.exec(command, timeout_sec=180, **options)
    return (result.stdout + result.stderr).decode().strip()
