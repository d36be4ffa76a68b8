"""One command over a line: launched once, watched until its end, its output fetched.

``wired.sh`` does the work inside, detached from every connection: a short command takes one call, a longer one a call in
every :data:`POLL_SEC` seconds, and any of them may be cut or come twice. What it left stays until its answer has arrived.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from agentrl.errors import SandboxError, SandboxGone, SandboxRefused, SandboxTransient
from agentrl.tools.wired_line import FILES_SEC, LATE_SEC, Line, plain
from agentrl.tools.wired_script import bash_script
from agentrl.types import ExecResult

OUTPUT_CAP = 10 << 20
POLL_SEC = 20.0
_ENV_BYTES = 80_000
_STOP_SEC = 30.0
_CANCEL_SEC = 15.0
_LITTER = 50
_SWEPT = 4
_SLACK = 100_000
_KILLED = 137
_MAC_BITS = 52
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. ``text`` is for ``bash -c``; everything may hold any bytes but NUL."""

    text: bytes
    cwd: str | None
    env: Mapping[str, str]
    stdin: bytes | None


@dataclass(frozen=True, slots=True)
class Room:
    """Where the commands of one user are at home inside; ``litter``: names of ended ones, which are removed with the next launch."""

    user: str | None
    name: str = field(default_factory=lambda: secrets.token_hex(12))
    litter: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Job:
    """A launched command: its name inside, and what it must not know (its end mark, the key over its exit code)."""

    line: Line
    room: Room
    name: str = field(default_factory=lambda: secrets.token_hex(12))
    end: str = field(default_factory=lambda: secrets.token_hex(16))
    key: tuple[int, int] = field(
        default_factory=lambda: (secrets.randbits(_MAC_BITS) + 1, secrets.randbits(_MAC_BITS + 8))
    )

    async def say(self, verb: str, *args: str, until: float, user: str | None, takes_sec: float = 0.0) -> list[str]:
        text = bash_script(verb, self.room.name, self.name, *args)
        return await self.line.say(lambda: text, until=until, user=user, within_sec=lambda: takes_sec)


def as_command(
    command: str | Sequence[str], cwd: str | None, env: Mapping[str, str] | None, stdin: bytes | None
) -> Command:
    """Check and encode. Raises: SandboxRefused."""
    text = command if isinstance(command, str) else f"exec -- {shlex.join(command)}"
    for name, value in (env or {}).items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SandboxRefused(f"{name!r} cannot be the name of an environment variable of bash")
        if "\0" in value:
            raise SandboxRefused(f"the environment variable {name} has a NUL in it")
    if "\0" in text or "\0" in (cwd or ""):
        raise SandboxRefused("a command and its folder cannot have a NUL in them")
    return Command(text.encode(errors="surrogateescape"), cwd, env or {}, stdin)


async def run_command(line: Line, command: Command, *, timeout_sec: float, room: Room) -> ExecResult:
    """Run it to its end, as the user of ``room``.

    Raises: SandboxTransient (it never ran), SandboxGone, SandboxRefused, SandboxError (its exit code is unknown).
    """
    job, deadline = _Job(line, room), time.monotonic() + timeout_sec
    stage = None
    try:
        env = _words(command) if len(command.stdin or b"") < _ENV_BYTES else None
        if env is None or sum(map(len, (*env, *env.values()))) > _ENV_BYTES:
            stage = Stage(line, deadline + LATE_SEC)
            env = await _carried(stage, command)
        said = await _launched(job, env, deadline)
        return await _followed(job, said, deadline)
    except (SandboxGone, SandboxRefused, SandboxTransient):
        raise
    except (asyncio.CancelledError, SandboxError):
        await asyncio.shield(_abandon(job))
        raise
    finally:
        room.litter.append(job.name)
        if stage is not None:
            await asyncio.shield(stage.remove())


class Stage:
    """A folder inside that carries big things in. ``until``: when to give up."""

    def __init__(self, line: Line, until: float) -> None:
        self._line, self._until, self._name = line, until, secrets.token_hex(12)

    async def put(self, data: bytes) -> str:
        """The path of a file with ``data`` that whoever knows its name can read. Raises: SandboxError."""
        folder = (await self._say("stage"))[0]

        async def send() -> str:
            path = f"{folder}/{secrets.token_hex(12)}"
            await self._line.wire.put(path, data)
            return path

        path = await self._line.ask(send, until=self._until)
        if await self._say("open", path.rpartition("/")[2]) != [str(len(data))]:
            raise SandboxError(f"an upload of {len(data)} bytes to {path} is not there as a whole")
        return path

    async def remove(self) -> None:
        """Remove it with all its files; a machine that does not answer keeps them."""
        with suppress(SandboxError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SEC):
                await self._say("remove")

    async def _say(self, verb: str, *args: str) -> list[str]:
        text = bash_script(verb, "-", self._name, *args)
        return await self._line.say(lambda: text, until=self._until, user=self._line.admin)


def _words(command: Command) -> dict[str, str]:
    """The command as variables of ``wired.sh``."""
    words = {"AGENTRL_COMMAND": plain(command.text)}
    if command.cwd is not None:
        words["AGENTRL_CWD"] = plain(command.cwd.encode(errors="surrogateescape"))
    if command.stdin is not None:
        words["AGENTRL_STDIN"] = plain(command.stdin)
    for name, value in command.env.items():
        words[f"AGENTRL_ENV_{name}"] = plain(value.encode(errors="surrogateescape"))
    return words


async def _carried(stage: Stage, command: Command) -> dict[str, str]:
    """The same variables, most of them in files."""
    words = _words(replace(command, stdin=None))
    source = "".join(f"{name}={shlex.quote(value)}\n" for name, value in words.items())
    carried = {"AGENTRL_STAGE": await stage.put(source.encode())}
    if command.stdin:
        carried["AGENTRL_STAGED_STDIN"] = await stage.put(command.stdin)
    return carried


def _left_sec(deadline: float) -> float:
    return max(0.0, min(POLL_SEC, deadline - time.monotonic()))


async def _launched(job: _Job, env: dict[str, str], deadline: float) -> list[str]:
    """Launch, and wait for as long as one call may take: what was said then."""
    left_sec, litter = partial(_left_sec, deadline), job.room.litter
    old = tuple(litter[:_LITTER]) if len(litter) >= _SWEPT else ()
    keyed = {**env, "AGENTRL_KEY": f"{job.key[0]} {job.key[1]} {job.end}"}
    said = await job.line.say(
        lambda: bash_script("launch", job.room.name, job.name, str(int(left_sec() * 10)), *old, keyed=True),
        env=keyed, until=deadline + LATE_SEC, user=job.room.user, within_sec=left_sec,
    )  # fmt: skip
    if said and said[0].startswith("ended"):  # Else it may not come to removing anything.
        litter[:] = [name for name in litter if name not in old]
    return said


async def _followed(job: _Job, said: list[str], deadline: float) -> ExecResult:
    """Watch a launched command until its end or the deadline."""
    left_sec = partial(_left_sec, deadline)
    try:
        while said == ["running"] and time.monotonic() < deadline:
            said = await job.line.say(
                lambda: bash_script("watch", job.room.name, job.name, str(int(left_sec() * 10))),
                until=deadline + LATE_SEC, user=job.room.user, within_sec=left_sec,
            )  # fmt: skip
        timed_out = said == ["running"]
        return await _result(job, await _stopped(job) if timed_out else said, timed_out=timed_out)
    except SandboxTransient as error:
        raise SandboxError(f"a command ran in {job.line.sandbox_id}, but its exit code is unknown: {error}") from error


async def _stopped(job: _Job) -> list[str]:
    """Kill the tree; what is said of the command then."""
    until = time.monotonic() + LATE_SEC
    await _kill(job, until)
    said = await job.say("watch", "30", until=until, user=job.room.user, takes_sec=3.0)
    if said == ["running"]:
        raise SandboxError(f"a command in {job.line.sandbox_id} survives SIGKILL")
    return said


async def _kill(job: _Job, until: float) -> None:
    """End the tree, as the admin and as its own user: each sees processes that the other does not."""
    for user in dict.fromkeys((job.line.admin, job.room.user)):
        await job.say("stop", until=until, user=user, takes_sec=_STOP_SEC)


async def _abandon(job: _Job) -> None:
    """Kill the command, or keep it from starting, if anybody answers."""
    with suppress(SandboxError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SEC):
            until = time.monotonic() + _CANCEL_SEC
            await _kill(job, until)
            await job.say("empty", until=until, user=job.room.user)


async def _result(job: _Job, said: list[str], *, timed_out: bool) -> ExecResult:
    fields = said[0].split() if said else []
    if not fields or fields[0] != "ended" or len(fields) != 7:
        raise _mishap(job, said)
    mark, code, *streams = fields[1:]
    if not (mark.isdecimal() and code.isdecimal()) or int(mark) != job.key[0] * int(code) + job.key[1]:
        raise SandboxError("the end mark of a command is not ours: something in the sandbox wrote it")
    sizes, kinds = [int(size) for size in streams[::2]], streams[1::2]
    if "lost" in kinds or min(sizes) < len(job.end):
        raise SandboxError("the output of a command could not be kept: is the sandbox's disk full?")
    data = _small(said[1:], sizes) if len(said) > 1 else await _large(job)
    ends = [_before(job.end.encode(), part) for part in data]
    truncated = "tail" in kinds or any(cut for _, cut in ends)
    return ExecResult(_KILLED if timed_out else int(code), ends[0][0], ends[1][0], timed_out, truncated)


def _mishap(job: _Job, said: list[str]) -> SandboxError:
    match said:
        case ["lost"]:
            return SandboxError(
                f"a command in {job.line.sandbox_id} was lost: its shell was killed, its files were removed, or the disk is full"
            )
        case ["nobash"]:
            return SandboxRefused(
                f"{job.line.sandbox_id} has no bash, which agents and commands need: use another image"
            )
        case ["nowhere"]:
            return SandboxError(
                f"{job.line.sandbox_id} has no folder to run commands from: is /tmp writable, is the disk full?"
            )
    return SandboxError(f"a command in {job.line.sandbox_id} was answered by {' '.join(said)[:200]!r}")


def _small(lines: list[str], sizes: list[int]) -> list[bytes]:
    """The two streams that came with the answer."""
    try:
        middle = lines.index("-")
        parts = [_told("".join(part)) for part in (lines[:middle], lines[middle + 1 :])]
    except (ValueError, binascii.Error) as error:
        raise SandboxError("the output of a command came mangled") from error
    if any(part and len(part) < size for part, size in zip(parts, sizes, strict=True)):
        raise SandboxError("the output of a command changed after its end")
    return parts


def _told(words: str) -> bytes:
    """What ``tell`` of ``wired.sh`` says: base64, or plain text behind a ``=``."""
    if words.startswith("="):
        return re.sub(r"\\(.)", lambda match: _ESCAPES[match[1]], words[1:]).encode()
    return base64.b64decode(words, validate=True)


async def _large(job: _Job) -> list[bytes]:
    """The ends of both streams, as files."""
    until, new = time.monotonic() + FILES_SEC, secrets.token_hex(12)
    said = await job.say("collect", str(OUTPUT_CAP + _SLACK), until=until, user=job.room.user, takes_sec=FILES_SEC)
    if len(said) != 3:
        raise _mishap(job, said)
    *sizes, start = said
    if job.room.user != job.line.admin:
        (start,) = await job.say("take", new, until=until, user=job.line.admin) or [start]
    data = []
    for name, size in zip(("out", "err"), sizes, strict=True):
        path = f"{start}{name}.end"
        data.append(await job.line.ask(partial(job.line.wire.get, path), until=until) if int(size) else b"")
        if len(data[-1]) != int(size):
            raise SandboxError(f"{len(data[-1])} bytes of output arrived instead of {size}")
    await job.say("empty", until=until, user=job.room.user)
    if job.room.user != job.line.admin:
        await _Job(job.line, job.room, new).say("remove", until=until, user=job.line.admin)
    return data


def _before(end: bytes, data: bytes) -> tuple[bytes, bool]:
    """What was written before the end mark, its tail, and whether something is missing."""
    whole, mark, _ = data.partition(end)
    return whole[-OUTPUT_CAP:], (bool(data) and not mark) or len(whole) > OUTPUT_CAP
