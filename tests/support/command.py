"""The ``agentrl`` command as a process, and the search for anything that such a process left on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent
GONE_SEC = 120.0
"""When to give up waiting for the end of what a run started: killed, that takes a moment, and a leash gives its program five seconds."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended; ``output`` is both streams."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Command:
    """Runs ``agentrl`` with nothing of ours in its environment but ``variables``. Its temp folder is ``home``, which also
    marks everything that it starts: the path is in the environment, the arguments or the mounts of each such process."""

    home: Path
    variables: Mapping[str, str]

    @property
    def runs(self) -> Path:
        """Where its runs lie."""
        return self.home / "runs"

    def environment(self, **more: str) -> dict[str, str]:
        """What the command gets."""
        foreign = ("SWE_", "AGENTRL_", "ADAPTER_", "PYTHON", "PYTEST_", "COV_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        ours = {
            "TMPDIR": str(self.home),
            "PYTHONPATH": str(SUPPORT),
            "AGENTRL_RUN_DIR": str(self.runs),
            "SWE_LOCAL_STATE_DIR": str(self.home / "local"),
            "COLUMNS": "200",
        }
        return {**inherited, **ours, **self.variables, **more}

    def run(self, *words: str, **more: str) -> Result:
        """Run to the end."""
        done = subprocess.run(
            [executable(), *words],
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Result(done.returncode, done.stdout)

    async def start(self, *words: str, **more: str) -> asyncio.subprocess.Process:
        """Start; both streams are one pipe. See :func:`finish`."""
        return await asyncio.create_subprocess_exec(
            executable(),
            *words,
            env=self.environment(**more),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    def traces(self) -> list[str]:
        """Processes and mounts of this machine that belong to the command."""
        return [*_processes(str(self.home)), *_mounts(str(self.home))]

    async def gone(self) -> None:
        """Returns when there is no trace any more. Raises: AssertionError."""
        deadline = time.monotonic() + GONE_SEC
        while found := self.traces():
            assert time.monotonic() < deadline, "\n".join(["left behind:", *found])
            await asyncio.sleep(0.05)


async def finish(process: asyncio.subprocess.Process) -> Result:
    """Wait for its end. A cancelled test takes it along."""
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return Result(process.returncode, output.decode())


def executable() -> str:
    """The console script beside the interpreter of the tests."""
    return str(Path(sys.executable).with_name("agentrl"))


def rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _processes(mark: str) -> Iterator[str]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            for name in ("cmdline", "environ", "mountinfo"):
                with suppress(OSError):
                    if mark.encode() in (folder / name).read_bytes():
                        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        yield f"process {folder.name} ({name}): {words[:200]}"
                        break


def _mounts(mark: str) -> Iterator[str]:
    yield from (f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if mark in line)
