"""The relay's program in a sandbox: put there, started, asked and told to end.

Not here: what is exchanged with it (:mod:`agentrl.relay.channel`) and what it does (:mod:`agentrl.relay.inside.program`).
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files

from agentrl.errors import SandboxError, SandboxRefused
from agentrl.relay.inside.program import HOLD
from agentrl.sandbox import Sandbox
from agentrl.tools.rawgit import fresh_path

START_SEC = 60.0
ANSWER_SEC = 30.0
_GOODBYE_SEC = 10.0
_NO_PROGRAM = 3
_NO_PYTHON = 127
_MODULES = ("__init__", "pipe", "streams", "carry", "websocket", "program")
_MAIN = "from inside.program import main\nmain()\n"
# Pythons that images are known to have beside their PATH come last.
_START = """for python in python3 python /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3; do
    if "$python" -IS -c 'import asyncio, sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; then
        echo "$python"
        exec "$python" -IS "$1/program.pyz" "$1" "$2" "$3"
    fi
done
exit 127"""


class ProgramLost(SandboxError):
    """The relay's program has ended, or is not the one that was started: something in the sandbox killed it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A running one. ``port``: where it listens for the agent; ``websocket``: for the host, 0: nowhere."""

    sandbox: Sandbox
    folder: str
    token: str = field(repr=False)
    python: str
    port: int
    websocket: int

    async def exchange(self, message: bytes, *, hold_sec: float) -> bytes:
        """Hand over one message and get one, held back at most so long until there is something in it.

        Raises: ProgramLost, SandboxError.
        """
        name = self.folder.rpartition("/")[2]
        argv = [self.python, "-IS", "-c", files(__package__).joinpath("inside/exchange.py").read_text(), name]
        visit = self.token.encode() + HOLD.pack(hold_sec) + message
        # What it says and hears has its place in the pipe: doing it twice does no harm.
        result = await self.sandbox.exec(
            argv, cwd="/", stdin=visit, timeout_sec=max(0.0, hold_sec) + ANSWER_SEC, idempotent=True
        )
        if result.exit_code == _NO_PROGRAM:
            raise ProgramLost(f"the relay's program in {self.sandbox.id} was killed")
        if not result.ok:
            said = result.stderr[-500:].decode(errors="replace").strip()
            raise SandboxError(f"the relay's program in {self.sandbox.id} was not reached: {said}")
        return result.stdout

    async def stop(self) -> None:
        """Tell it to end and remove its files, as far as the sandbox still answers."""
        removal = ["rm", "-rf", self.folder]
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SEC):
                with suppress(SandboxError):
                    await self.exchange(b"", hold_sec=-1.0)
                with suppress(SandboxError):
                    await self.sandbox.exec(removal, cwd="/", timeout_sec=_GOODBYE_SEC, idempotent=True)


async def launch(sandbox: Sandbox, *, websocket: bool, port: int = 0) -> Program:
    """Start the program; ``port``: where it listens for the agent, 0: anywhere. Raises: SandboxRefused, SandboxError."""
    folder, token = fresh_path(), secrets.token_urlsafe(32)
    await sandbox.write_file(f"{folder}/program.pyz", archive())
    argv = ["sh", "-c", _START, "sh", folder, str(port), str(int(websocket))]
    result = await sandbox.exec(argv, cwd="/", stdin=token.encode() + b"\n", timeout_sec=START_SEC, idempotent=True)
    if result.exit_code == _NO_PYTHON:
        raise SandboxRefused(
            f"the relay needs python3 (3.6 or newer) in the sandbox and {sandbox.id} has none: add it to the image or by a layer, "
            "or let agents reach the gateway without it (AGENTRL_REACH=public and ADAPTER_PUBLIC_HOST)"
        )
    python, _, said = result.stdout.decode(errors="replace").partition("\n")
    where = _where(said) if result.ok else {}
    if not where.get("port"):
        reason = where.get("error") or result.stderr[-500:].decode(errors="replace").strip() or said
        raise SandboxError(f"the relay's program did not start in {sandbox.id}: {reason}")
    return Program(sandbox, folder, token, python, int(where["port"]), int(where["websocket"]))


def archive() -> bytes:
    """The program as one file that a Python runs."""
    buffer = io.BytesIO()
    inside = files(__package__).joinpath("inside")
    with zipfile.ZipFile(buffer, "w") as packed:
        for name in _MODULES:
            packed.writestr(f"inside/{name}.py", inside.joinpath(f"{name}.py").read_bytes())
        packed.writestr("__main__.py", _MAIN)
    return buffer.getvalue()


def _where(said: str) -> dict[str, str | int]:
    try:
        answer = json.loads(said)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
