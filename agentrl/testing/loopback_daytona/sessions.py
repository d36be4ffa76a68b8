"""Sessions of the loopback provider: a shell that lives on, one command after the other, line by line logs.

What is odd here is odd there: ``exit`` ends the shell, and the command that said it never ends; so it is with a background child that
holds the streams. A log is lines behind marks for stdout and stderr, which the output can forge, and always ends with a newline.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import uuid
from dataclasses import dataclass, field

from aiohttp import web

from agentrl.testing.guest import Process
from agentrl.testing.loopback_daytona.machine import Machine
from agentrl.testing.loopback_daytona.shapes import Refused
from agentrl.testing.loopback_daytona.toolbox import Toolbox

POLL_SEC = 0.05
OUT, ERR = b"\x01\x01\x01", b"\x02\x02\x02"
SHELL = ["sh", "-c", "exec bash >/dev/null 2>&1"]
_LINES = '(while IFS= read -r l || [ -n "$l" ]; do printf \'%s%%s\\n\' "$l"; done <%s >>log) &'


@dataclass(slots=True)
class Command:
    """``folder``: inside, with its log, its stdin and, at its end, its code."""

    id: str
    text: str
    folder: str
    echo: bool


@dataclass(slots=True)
class Session:
    """``shell``: reads commands from its stdin."""

    id: str
    shell: Process
    commands: dict[str, Command] = field(default_factory=dict)


def routes(toolbox: Toolbox) -> list[web.RouteDef]:
    """What the SDK asks for."""
    one, command = "/process/session/{session}", "/process/session/{session}/command/{command}"
    return [
        toolbox.route("POST", "/process/session", create),
        toolbox.route("GET", "/process/session", list_sessions),
        toolbox.route("GET", one, get),
        toolbox.route("DELETE", one, delete),
        toolbox.route("POST", one + "/exec", execute, "exec"),
        toolbox.route("GET", command, get_command),
        toolbox.route("GET", command + "/logs", logs),
        toolbox.route("POST", command + "/input", send_input),
    ]


async def create(machine: Machine, request: web.Request) -> web.Response:
    """A shell."""
    name = (await request.json())["sessionId"]
    if name in machine.sessions:
        raise Refused(409, f"conflict: session {name} already exists")
    shell = await machine.started.spawn(
        SHELL, env=machine.environment(), cwd=machine.home, user=machine.inside, stdin=True
    )
    machine.sessions[name] = Session(name, shell)
    return web.Response(status=201)


async def list_sessions(machine: Machine, request: web.Request) -> web.Response:
    """All of the machine."""
    return web.json_response([await _session_json(machine, session) for session in machine.sessions.values()])


async def get(machine: Machine, request: web.Request) -> web.Response:
    """With its commands."""
    return web.json_response(await _session_json(machine, _session(machine, request)))


async def delete(machine: Machine, request: web.Request) -> web.Response:
    """With everything that it started."""
    session = machine.sessions.pop(_session(machine, request).id)
    session.shell.signal(signal.SIGKILL, group=True)
    session.shell.close()
    return web.Response(status=204)


async def execute(machine: Machine, request: web.Request) -> web.Response:
    """Give the shell a command; wait for its end unless told not to."""
    session, body = _session(machine, request), await request.json()
    command_id = str(uuid.uuid4())
    folder = f"{machine.home}/.daytona/sessions/{session.id}/{command_id}"
    command = Command(command_id, body["command"], folder, not body.get("suppressInputEcho"))
    session.commands[command_id] = command
    stdin = session.shell.stdin
    if stdin is None or session.shell.returncode is not None:
        raise Refused(410, "gone: the session has ended")
    await _prepare(machine, command)
    stdin.write(_script(command).encode())
    await stdin.drain()
    if body.get("runAsync") or body.get("async"):
        return web.json_response({"cmdId": command_id}, status=202)
    code = await _end(machine, command)
    out, err, whole = _parted(await _log(machine, command))
    answer = {"cmdId": command_id, "exitCode": code, "output": whole, "stdout": out, "stderr": err}
    return web.json_response(answer)


async def get_command(machine: Machine, request: web.Request) -> web.Response:
    """With its exit code once it has ended."""
    return web.json_response(await _command_json(machine, _command(machine, request)))


async def logs(machine: Machine, request: web.Request) -> web.StreamResponse:
    """So far, or followed to the end by websocket."""
    command = _command(machine, request)
    if request.query.get("follow", "").lower() != "true":
        out, err, whole = _parted(await _log(machine, command))
        return web.json_response({"output": whole, "stdout": out, "stderr": err})
    listener = web.WebSocketResponse()
    await listener.prepare(request)
    sent, over = 0, False
    while not over:
        over = await _code(machine, command) is not None
        log = await _log(machine, command)
        if len(log) > sent:
            await listener.send_bytes(log[sent:])
            sent = len(log)
        await asyncio.sleep(0 if over else POLL_SEC)
    await listener.close()
    return listener


async def send_input(machine: Machine, request: web.Request) -> web.Response:
    """To the stdin of a command that runs; it appears in the log as if it had been said."""
    command, data = _command(machine, request), (await request.json())["data"].encode()
    if await _code(machine, command) is not None:
        raise Refused(410, "gone: the command has completed")
    folder = shlex.quote(command.folder)
    if command.echo:
        await _pour(machine, OUT + data, f"cat >>{folder}/log")
    await _pour(machine, data, f"cat >{folder}/in")
    return web.Response(status=204)


# ------------------------------------------------------------------------------------------------------- the parts


def _script(command: Command) -> str:
    """What the shell reads. It stays where it is: what the command does to folder and variables is kept."""
    folder = shlex.quote(command.folder)
    out, err = (_LINES % (mark, name) for mark, name in (("\\001\\001\\001", "out"), ("\\002\\002\\002", "err")))
    return (
        f"(cd {folder} && {{ {out} {err} wait; }}) & __readers=$!\n"
        f"{{\n{command.text}\n}} <>{folder}/in >{folder}/out 2>{folder}/err\n"
        f"echo $? >{folder}/ended; wait $__readers; mv {folder}/ended {folder}/code\n"
    )


async def _prepare(machine: Machine, command: Command) -> None:
    """Its folder, before anybody can ask for the command."""
    script = 'mkdir -p "$0" && cd "$0" && mkfifo in out err && : >log'
    process = await machine.started.spawn(
        ["sh", "-c", script, command.folder], env=machine.environment(), user=machine.inside
    )
    await process.output()


async def _pour(machine: Machine, data: bytes, script: str) -> None:
    """Run ``script`` with ``data`` on its stdin."""
    process = await machine.started.spawn(
        ["sh", "-c", script], env=machine.environment(), user=machine.inside, stdin=True
    )
    assert process.stdin is not None, "it was started with stdin"
    try:
        process.stdin.write(data)
        await process.stdin.drain()
        process.stdin.close()
        await process.output()
    finally:
        process.close()


def _parted(log: bytes) -> tuple[str, str, str]:
    """stdout, stderr and both, by the marks."""
    pieces = re.split(rb"(\x01\x01\x01|\x02\x02\x02)", log)
    streams = {OUT: b"", ERR: b""}
    mark, whole = OUT, pieces[0]
    for piece in pieces[1:]:
        if piece in streams:
            mark = piece
        else:
            streams[mark] += piece
            whole += piece
    out, err, both = (text.decode(errors="replace") for text in (streams[OUT], streams[ERR], whole))
    return out, err, both


async def _code(machine: Machine, command: Command) -> int | None:
    try:
        return int(await machine.started.read(f"{command.folder}/code", user=machine.inside))
    except OSError:
        return None


async def _end(machine: Machine, command: Command) -> int:
    while True:
        code = await _code(machine, command)
        if code is not None:
            return code
        await asyncio.sleep(POLL_SEC)


async def _log(machine: Machine, command: Command) -> bytes:
    try:
        return await machine.started.read(f"{command.folder}/log", user=machine.inside)
    except OSError:
        return b""


def _session(machine: Machine, request: web.Request) -> Session:
    try:
        return machine.sessions[request.match_info["session"]]
    except KeyError as error:
        raise Refused(404, f"not found: session {error.args[0]}") from None


def _command(machine: Machine, request: web.Request) -> Command:
    try:
        return _session(machine, request).commands[request.match_info["command"]]
    except KeyError as error:
        raise Refused(404, f"not found: command {error.args[0]}") from None


async def _command_json(machine: Machine, command: Command) -> dict[str, object]:
    return {"id": command.id, "command": command.text, "exitCode": await _code(machine, command)}


async def _session_json(machine: Machine, session: Session) -> dict[str, object]:
    commands = [await _command_json(machine, command) for command in session.commands.values()]
    return {"sessionId": session.id, "commands": commands}
