"""Agents in real sandboxes call a service on the host through the relay, on both of its channels."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from typing import Any

import aiohttp
import pytest
from port_host import SECRET, Ported
from provider import until

from agentrl.api import ExecResult, Sandbox, SandboxGone, SandboxRefused, SandboxTransient
from agentrl.relay import channel, relay
from agentrl.relay.inside.pipe import Pipe
from agentrl.relay.inside.streams import Streams
from agentrl.relay.launch import _START, ProgramLost, launch
from agentrl.relay.relay import Relay

ROOT = "/s/token-of-this-session"

# Posts N bodies of SIZE bytes at once to PATH and compares what comes back with what it expects.
CROWD = """
import hashlib, http.client, os, sys, threading
port, path, number, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
good = []
def call():
    body = os.urandom(size)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    for _ in range(2):
        connection.request("POST", path, body)
        answer = connection.getresponse().read()
    good.append(answer == (body if path.endswith("back") else hashlib.sha256(body).hexdigest().encode()))
threads = [threading.Thread(target=call) for _ in range(number)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(good.count(True))
"""


def opened(sandbox: Sandbox, service: Any, *, tunnel: bool) -> Relay:
    """The relay of these tests."""
    return Relay(sandbox, port=service.port, root=ROOT, tunnel=tunnel)


async def says(sandbox: Sandbox, command: str) -> str:
    """What a command in the sandbox prints."""
    result = await sandbox.exec(command, timeout_sec=300)
    assert not result.timed_out
    return result.stdout.decode()


async def crowd(sandbox: Sandbox, url: str, path: str, number: int, size: int) -> str:
    """How many of so many callers got the right answer."""
    argv = ["python3", "-c", CROWD, url.rpartition(":")[2], ROOT + path, str(number), str(size)]
    result = await sandbox.exec(argv, timeout_sec=300)
    return (result.stdout + result.stderr).decode().strip()


def exchanges(sandbox: Ported) -> int:
    """How many messages were carried by commands."""
    return sum("import socket" in command[3] for command in sandbox.commands if len(command) == 5)


@pytest.fixture(params=["by polls", "by websocket"])
def way(request, walled, ported) -> tuple[Sandbox, bool]:
    """A sandbox, and whether there is a way in."""
    return (ported, True) if request.param == "by websocket" else (walled, False)


# ------------------------------------------------------------------------------------------------ both channels


async def test_many_requests_at_once_come_back_whole(way, service):
    sandbox, tunnel = way
    async with opened(sandbox, service, tunnel=tunnel) as made:
        assert await crowd(sandbox, made.url, "/back", 32, 30_000) == "32"
        assert await crowd(sandbox, made.url, "/hash", 2, 3_000_000) == "2"


async def test_a_stream_flows_piece_by_piece(way, service):
    sandbox, tunnel = way
    folder = (await says(sandbox, "mktemp -d")).strip()
    async with opened(sandbox, service, tunnel=tunnel) as made:
        reading = asyncio.create_task(says(sandbox, f"curl -sN {made.url}{ROOT}/pieces > {folder}/pieces"))
        # A piece has to arrive while the next one is not yet made.
        for number in range(2):
            service.more.release()
            while await says(sandbox, f"grep -c data {folder}/pieces") != f"{number + 1}\n":
                assert not reading.done()
        service.more.release()
        await reading
        whole = await says(sandbox, f"cat {folder}/pieces; rm -r {folder}")
    assert whole == "data: 0\n\ndata: 1\n\ndata: 2\n\n"


async def test_a_client_that_leaves_is_noticed(way, service):
    sandbox, tunnel = way
    async with opened(sandbox, service, tunnel=tunnel) as made:
        async with asyncio.timeout(300):
            call = asyncio.create_task(says(sandbox, f"curl -s {made.url}{ROOT}/wait"))
            await service.arrived.wait()
            call.cancel()
            await asyncio.wait([call])
            await service.left.wait()


# Asks and goes without a farewell, as a machine does that runs out of memory.
RUDE = """
import os, socket, struct, sys, time
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
client.sendall(("GET %s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % sys.argv[2]).encode())
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
client.close()
"""


async def test_a_connection_that_breaks_at_one_end_breaks_at_the_other(way, service):
    sandbox, tunnel = way
    async with asyncio.timeout(300), opened(sandbox, service, tunnel=tunnel) as made:
        assert (await says(sandbox, f"curl -s {made.url}{ROOT}/break; echo $?")).strip() in ("52", "56")
        sign = f"{made.folder}/go"
        argv = ["python3", "-c", RUDE, made.url.rpartition(":")[2], f"{ROOT}/wait", sign]
        call = asyncio.create_task(sandbox.exec(argv, timeout_sec=300))
        await service.arrived.wait()
        await sandbox.write_file(sign, b"")
        await service.left.wait()
        await call


async def test_a_request_under_way_is_cut_when_the_relay_ends(way, service):
    sandbox, tunnel = way
    async with asyncio.timeout(300):
        async with opened(sandbox, service, tunnel=tunnel) as made:
            call = asyncio.create_task(says(sandbox, f"curl -s {made.url}{ROOT}/wait; echo $?"))
            await service.arrived.wait()
        await service.left.wait()
        # 52 and 56 are curl's words for a server that hung up.
        assert (await call).strip() in ("52", "56")


async def test_nothing_else_of_the_host_is_reached(way, service):
    sandbox, tunnel = way
    async with opened(sandbox, service, tunnel=tunnel) as made:
        paths = ["/health", "/s/another-session/v1", f"{ROOT}/../another/v1"]
        for target in (*(f"--path-as-is {made.url}{path}" for path in paths), f"-x {made.url} http://127.0.0.1:22/"):
            assert await says(sandbox, f"curl -s {target}") == "only this session's own URL is reached from here\n"
        assert await says(sandbox, f"curl -s {made.url}{ROOT}/") == "hello"
    assert list(service.asked) == [f"{ROOT}/"]


async def test_a_killed_program_is_started_again_at_the_same_port(way, service, caplog):
    sandbox, tunnel = way
    async with opened(sandbox, service, tunnel=tunnel) as made:
        assert await says(sandbox, f"curl -s {made.url}{ROOT}/") == "hello"
        await sandbox.exec(["pkill", "-f", f"progra[m].pyz {made.folder}"], timeout_sec=300)
        retry = "--retry 100 --retry-delay 1 --retry-all-errors"
        assert await says(sandbox, f"curl -s {retry} {made.url}{ROOT}/") == "hello"
    assert "was killed" in caplog.text


async def test_the_port_of_a_program_that_is_about_to_end_is_waited_for(ported):
    with socket.socket() as before:
        before.bind(("127.0.0.1", 0))
        before.listen()
        port = before.getsockname()[1]
        launching = asyncio.create_task(launch(ported, websocket=False, port=port))
        await until(lambda: ported.commands)
        await says(ported, f"until [ -e {ported.commands[0][4]}/started ]; do sleep 0.02; done")
    program = await launching
    assert program.port == port
    await program.stop()


async def test_nothing_is_left_behind(way, service):
    sandbox, tunnel = way
    async with opened(sandbox, service, tunnel=tunnel) as made:
        folder = made.folder
        assert await says(sandbox, f"ls {folder}") != ""
        assert await says(sandbox, f"pgrep -fc '{folder}'") != "0\n"
    assert await says(sandbox, f"ls {folder} 2>/dev/null") == ""
    await says(sandbox, f"while pgrep -f 'progra[m].pyz {folder}'; do sleep 0.02; done")


async def test_a_service_that_is_down_hangs_up(way, service):
    sandbox, tunnel = way
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        service.port = closed.getsockname()[1]
        async with opened(sandbox, service, tunnel=tunnel) as made:
            assert (await says(sandbox, f"curl -s {made.url}{ROOT}/; echo $?")).strip() in ("52", "56")


# ------------------------------------------------------------------------------------------------ the WebSocket


@pytest.fixture
def no_stand_in(monkeypatch):
    """Polls wait for the WebSocket to open, however long that takes."""
    monkeypatch.setattr(relay, "PATIENCE_SEC", 600.0)
    monkeypatch.setattr(channel, "CONNECT_SEC", 600.0)


@pytest.mark.usefixtures("no_stand_in")
async def test_a_channel_that_is_cut_all_the_time_loses_and_doubles_nothing(ported, port_host, service, monkeypatch):
    monkeypatch.setattr(relay, "STEADY_SEC", 0.0)
    dice = random.Random(7)
    port_host.budget = lambda: dice.randrange(2_000, 90_000)
    async with opened(ported, service, tunnel=True) as made:
        assert await crowd(ported, made.url, "/back", 8, 100_000) == "8"
        assert await crowd(ported, made.url, "/hash", 4, 200_000) == "4"
    assert port_host.cuts > 20
    assert exchanges(ported) == 1  # the goodbye


@pytest.mark.usefixtures("no_stand_in")
async def test_while_the_websocket_lives_no_commands_are_run(ported, port_host, service):
    async with opened(ported, service, tunnel=True) as made:
        await port_host.until_visits(1)
        before = len(ported.commands)
        assert await crowd(ported, made.url, "/back", 4, 1000) == "4"
        assert len(ported.commands) == before + 1


@pytest.mark.usefixtures("no_stand_in")
async def test_a_websocket_on_which_nobody_has_anything_to_say_stays(ported, port_host, service, monkeypatch):
    monkeypatch.setattr(channel, "HEARTBEAT_SEC", 0.1)
    async with opened(ported, service, tunnel=True):
        await until(lambda: port_host.answers > 10)
        assert (port_host.visits, port_host.cuts) == (1, 0)


async def test_the_newest_connection_of_the_host_takes_over(ported, port_host):
    program = await launch(ported, websocket=True)
    hello = program.token.encode() + bytes(16)
    url = f"http://127.0.0.1:{program.websocket}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as old, session.ws_connect(url) as new:
        for socket in (old, new):
            await socket.send_bytes(hello)
            assert await socket.receive_bytes() == bytes(16)
        assert (await old.receive(timeout=100)).type is aiohttp.WSMsgType.CLOSED
        await new.send_bytes(bytes(16))
        assert await new.receive_bytes() == bytes(16)
    await program.stop()


async def test_a_websocket_that_does_not_open_holds_nobody_up(ported, port_host, service, monkeypatch):
    monkeypatch.setattr(channel, "CONNECT_SEC", 300.0)
    port_host.mute = True
    async with opened(ported, service, tunnel=True) as made:
        assert await crowd(ported, made.url, "/back", 2, 1000) == "2"
        assert (port_host.visits, port_host.cuts) == (1, 0)


@pytest.mark.usefixtures("no_stand_in")
async def test_a_websocket_that_falls_silent_is_replaced(ported, port_host, service, monkeypatch):
    monkeypatch.setattr(channel, "HEARTBEAT_SEC", 0.1)
    async with asyncio.timeout(300), opened(ported, service, tunnel=True) as made:
        assert await crowd(ported, made.url, "/back", 1, 1000) == "1"
        assert exchanges(ported) == port_host.cuts == 0
        monkeypatch.setattr(channel, "SILENCE_SEC", 0.3)
        heard = port_host.answers
        await until(lambda: port_host.answers > heard + 1)
        monkeypatch.setattr(channel, "CONNECT_SEC", 1.0)
        port_host.mute = True
        call = asyncio.create_task(crowd(ported, made.url, "/back", 4, 1000))
        while not exchanges(ported):  # polls have taken over
            await asyncio.sleep(0.01)
        port_host.mute = False
        assert await call == "4"


async def test_a_websocket_that_does_not_open_is_tried_again(ported, port_host, service, monkeypatch):
    monkeypatch.setattr(channel, "CONNECT_SEC", 0.5)
    port_host.mute = True
    async with asyncio.timeout(300), opened(ported, service, tunnel=True):
        await port_host.until_visits(1)
        await port_host.until_visits(2)


@pytest.mark.parametrize("refusal", ["401 Unauthorized", "404 Not Found", "502 Bad Gateway", "200 OK"])
async def test_without_a_websocket_it_goes_on_by_polls_and_no_log_has_the_providers_token(
    ported, port_host, service, refusal, caplog
):
    port_host.refuse = refusal.encode()
    with caplog.at_level(logging.DEBUG):
        async with opened(ported, service, tunnel=True) as made:
            assert await crowd(ported, made.url, "/back", 4, 1000) == "4"
    assert port_host.visits == 0
    assert "WebSocket" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("instead", ["none", SandboxRefused("no ports today"), SandboxTransient("busy")], ids=str)
async def test_without_a_way_in_it_goes_on_by_polls(ported, port_host, service, instead):
    ported.instead = instead
    async with opened(ported, service, tunnel=True) as made:
        assert await crowd(ported, made.url, "/back", 2, 1000) == "2"
    assert port_host.visits == 0


async def test_a_websocket_is_tried_again(ported, port_host, service):
    port_host.refuse = b"502 Bad Gateway"
    async with asyncio.timeout(300), opened(ported, service, tunnel=True) as made:
        assert await crowd(ported, made.url, "/back", 1, 1000) == "1"
        port_host.refuse = b""
        await port_host.until_visits(1)
        assert await crowd(ported, made.url, "/back", 1, 1000) == "1"


# ---------------------------------------------------------------------------------------------------- strangers


async def test_without_the_token_nobody_is_the_host(ported, port_host, service):
    program = await launch(ported, websocket=True)
    url = f"http://127.0.0.1:{program.websocket}"
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as stranger:
            await stranger.send_bytes(b"x" * 43 + bytes(16))
            assert (await stranger.receive()).type is not aiohttp.WSMsgType.BINARY
        async with session.get(url) as answer:
            assert answer.status == 400
    forged = type(program)(ported, program.folder, "x" * 43, program.python, program.port, 0)
    assert await forged.exchange(bytes(16), hold_sec=0.0) == b""
    # It is still there, and its streams have not begun.
    assert await program.exchange(bytes(16), hold_sec=0.0) == bytes(16)
    await program.stop()
    with pytest.raises(ProgramLost):
        await channel.by_polls(Streams(Pipe()), program)


async def test_the_token_is_on_no_command_line_and_in_no_environment(ported, service):
    program = await launch(ported, websocket=True)
    seen = await says(
        ported, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a agentrl-"
    )
    assert program.folder in seen
    assert program.token not in seen
    await program.stop()


async def test_a_launch_that_is_repeated_starts_one_program(walled):
    class Twice:
        def __getattr__(self, name: str) -> Any:
            return getattr(walled, name)

        async def exec(self, *args: Any, **options: Any) -> ExecResult:
            both = await asyncio.gather(walled.exec(*args, **options), walled.exec(*args, **options))
            assert both[0] == both[1]
            return both[1]

    program = await launch(Twice(), websocket=False)
    assert await says(walled, f"pgrep -fc 'progra[m].pyz {program.folder}'") == "1\n"


# ----------------------------------------------------------------------------------------------------- refusals


class Bare:
    """A sandbox whose commands end as a test says."""

    id = "bare-1"

    def __init__(self, result: ExecResult | Exception) -> None:
        self.result = result

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None: ...

    async def exec(self, command: Any, **_: Any) -> ExecResult:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


async def test_an_image_without_python_says_what_to_do(service):
    with pytest.raises(SandboxRefused, match=r"python3.*layer.*AGENTRL_REACH=public"):
        async with opened(Bare(ExecResult(127, b"", b"")), service, tunnel=False):
            pass


async def test_the_search_for_python_ends_with_that_code_where_there_is_none(walled):
    script = _START.replace("/usr/", "/nowhere/").replace("/opt/", "/nowhere/")
    result = await walled.exec(
        ["/bin/sh", "-c", script, "sh", "/x", "0", "0"], env={"PATH": "/nowhere"}, timeout_sec=100
    )
    assert result.exit_code == 127


async def test_a_sandbox_that_dies_is_the_sandboxes_fault(walled, service):
    with pytest.raises(SandboxGone):
        async with asyncio.timeout(300), opened(walled, service, tunnel=False) as made:
            await walled.close()
            while not made.broken:
                await asyncio.sleep(0.01)


async def test_what_the_block_raises_is_what_is_raised(walled, service):
    with pytest.raises(SandboxGone, match="my own"):
        async with asyncio.timeout(300), opened(walled, service, tunnel=False) as made:
            await walled.close()
            while not made.broken:
                await asyncio.sleep(0.01)
            raise SandboxGone("my own")
