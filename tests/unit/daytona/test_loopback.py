"""The loopback provider seen through the SDK alone: what the real one was measured to do."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from daytona import (
    AsyncDaytona,
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    CreateSnapshotParams,
    DaytonaConfig,
    DaytonaError,
    ListSandboxesQuery,
    Resources,
    SessionExecuteRequest,
)

from agentrl.testing.loopback_daytona import LoopbackDaytona

# A websocket server on nothing but the standard library: it sends each frame back.
ECHO = """
import base64, hashlib, socketserver, struct
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        lines = iter(self.rfile.readline, b"\\r\\n")
        key = next(line.split()[1] for line in lines if line.lower().startswith(b"sec-websocket-key:"))
        list(lines)
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        upgrade = b"HTTP/1.1 101 Switching\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
        self.wfile.write(upgrade + b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
        while head := self.rfile.read(2):
            size = head[1] & 127
            if size > 125:
                size = struct.unpack(">H" if size == 126 else ">Q", self.rfile.read(2 if size == 126 else 8))[0]
            mask, data = self.rfile.read(4), self.rfile.read(size)
            plain = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
            self.wfile.write(head[:1] + bytes([127]) + struct.pack(">Q", size) + plain)
socketserver.ThreadingTCPServer(("127.0.0.1", 8200), Echo).serve_forever()
"""


@pytest.fixture
async def daytona(server):
    config = DaytonaConfig(api_key=server.api_key, api_url=server.url, target="loopback")
    async with AsyncDaytona(config) as client:
        yield client


@pytest.fixture
async def machine(daytona):
    return await daytona.create(CreateSandboxFromSnapshotParams(os_user="root"))


def status(caught):
    return caught.value.status_code


# ---------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\nerr\n"),
        ("kill -9 $$", -1, ""),
        ("printf '\\377x'", 0, "�x"),
        ("no-such-program 2>/dev/null", 127, ""),
        ("pwd; echo $HOME; id -u", 0, "/root\n/root\n0\n"),
    ],
)
async def test_commands_end_as_theirs_do(machine, command, code, said):
    answer = await machine.process.exec(command)
    assert (answer.exit_code, answer.result) == (code, said)


async def test_commands_take_a_folder_variables_and_a_megabyte_of_text(machine):
    answer = await machine.process.exec("pwd; echo $OURS", cwd="/tmp", env={"OURS": "a b"})
    assert answer.result == "/tmp\na b\n"
    assert (await machine.process.exec(": " + "x" * 900_000 + "\necho on")).result == "on\n"


async def test_a_missing_folder_is_an_answer(machine):
    answer = await machine.process.exec("true", cwd="/no/such")
    assert answer.exit_code == -1 and "/no/such" in answer.result


async def test_a_timeout_kills_the_group_and_says_408(machine):
    with pytest.raises(DaytonaError) as caught:
        await machine.process.exec("sh -c 'echo $$ > /tmp/pid; sleep 600'", timeout=1)
    assert status(caught) == 408
    await machine.process.exec("while kill -0 $(cat /tmp/pid); do sleep 0.05; done 2>/dev/null")


async def test_a_background_child_that_holds_the_output_keeps_the_command_open(machine):
    running = asyncio.create_task(
        machine.process.exec("(until [ -e /tmp/go ]; do sleep 0.02; done; echo late) & echo done")
    )
    await machine.process.exec("sleep 0.2")
    assert not running.done()
    await machine.process.exec("touch /tmp/go")
    assert (await running).result == "done\nlate\n"


async def test_blank_commands_are_refused(machine):
    with pytest.raises(DaytonaError) as caught:
        await machine.process.exec("  ")
    assert status(caught) == 400


# ---------------------------------------------------------------------------------------------------------- sessions


async def test_a_session_keeps_its_state_and_speaks_in_lines(machine):
    await machine.process.create_session("s")
    first = await machine.process.execute_session_command(
        "s", SessionExecuteRequest(command="cd /tmp; export A=1; echo e >&2")
    )
    second = await machine.process.execute_session_command("s", SessionExecuteRequest(command="pwd; printf $A"))
    assert (first.exit_code, first.stdout, first.stderr) == (0, "", "e\n")
    assert second.stdout == "/tmp\n1\n", "a newline ends it"
    with pytest.raises(DaytonaError) as caught:
        await machine.process.create_session("s")
    assert status(caught) == 409
    with pytest.raises(DaytonaError) as caught:
        await machine.process.get_session("t")
    assert status(caught) == 404


async def test_exit_in_a_session_never_ends(machine):
    await machine.process.create_session("s")
    started = await machine.process.execute_session_command(
        "s", SessionExecuteRequest(command="exit 3", run_async=True)
    )
    await machine.process.exec("sleep 0.3")
    assert (await machine.process.get_session_command("s", started.cmd_id)).exit_code is None
    await machine.process.delete_session("s")


async def test_a_long_command_is_followed_and_takes_input(machine):
    await machine.process.create_session("s")
    request = SessionExecuteRequest(
        command="read l; echo got $l; echo bad >&2; exit_code() { return 5; }; exit_code", run_async=True
    )
    started = await machine.process.execute_session_command("s", request)
    out, err = [], []
    following = asyncio.create_task(
        machine.process.get_session_command_logs_async("s", started.cmd_id, out.append, err.append)
    )
    await machine.process.send_session_command_input("s", started.cmd_id, "hello\n")
    await following
    assert "got hello\n" in "".join(out) and "".join(out).count("hello") == 2, "input is echoed"
    assert "".join(err) == "bad\n"
    assert (await machine.process.get_session_command("s", started.cmd_id)).exit_code == 5
    with pytest.raises(DaytonaError) as caught:
        await machine.process.send_session_command_input("s", started.cmd_id, "more\n")
    assert status(caught) == 410


async def test_output_can_forge_the_marks_of_a_session(machine):
    await machine.process.create_session("s")
    request = SessionExecuteRequest(command="printf 'a\\002\\002\\002b\\n'")
    answer = await machine.process.execute_session_command("s", request)
    assert (answer.stdout, answer.stderr) == ("a", "b\n")


# ------------------------------------------------------------------------------------------------------------- files


async def test_files_are_bytes_and_errors_are_theirs(machine):
    data = bytes(range(256)) * 1000
    await machine.fs.upload_file(data, "/tmp/new/a b")
    assert await machine.fs.download_file("/tmp/new/a b") == data
    assert [entry.name for entry in await machine.fs.list_files("/tmp/new")] == ["a b"]
    assert (await machine.fs.get_file_info("/tmp/new/a b")).size == len(data)
    for path in ("/tmp/none", "/tmp/new"):
        with pytest.raises(DaytonaError) as caught:
            await machine.fs.download_file(path)
        assert status(caught) is None, "downloads tell it in words only"
    with pytest.raises(DaytonaError) as caught:
        await machine.fs.upload_file(b"x", "/tmp/new")
    assert status(caught) == 400
    with pytest.raises(DaytonaError) as caught:
        await machine.fs.delete_file("/tmp/new")
    assert status(caught) == 400
    await machine.fs.delete_file("/tmp/new", recursive=True)
    with pytest.raises(DaytonaError) as caught:
        await machine.fs.get_file_info("/tmp/new")
    assert status(caught) == 404


# ------------------------------------------------------------------------------------------------------------ control


async def test_a_stopped_machine_answers_400_until_it_is_started(server, daytona, machine):
    await machine.stop()
    with pytest.raises(DaytonaError, match="started") as caught:
        await machine.process.exec("true")
    assert status(caught) == 400
    await machine.start()
    assert (await machine.process.exec("true")).exit_code == 0


async def test_running_processes_are_no_activity(server, daytona):
    machine = await daytona.create(CreateSandboxFromSnapshotParams(auto_stop_interval=1))
    running = asyncio.create_task(machine.process.exec("touch /tmp/on; sleep 600"))
    await machine.process.exec("until [ -e /tmp/on ]; do sleep 0.02; done")
    server.minute_sec = 0.01
    with pytest.raises(DaytonaError):
        await running
    assert server.machines[machine.id].state == "stopped"


async def test_resources_with_a_snapshot_are_refused(daytona, machine):
    capture = getattr(machine, "create_snapshot", None) or machine._experimental_create_snapshot
    await machine.fs.upload_file(b"kept", "/opt/kept")
    await capture("mine")
    with pytest.raises(DaytonaError, match="mine") as caught:
        await capture("mine")
    assert status(caught) == 409
    other = await daytona.create(CreateSandboxFromSnapshotParams(snapshot="mine", os_user="root"))
    assert await other.fs.download_file("/opt/kept") == b"kept"
    sized = await daytona.create(
        CreateSandboxFromImageParams(image="debian:12", resources=Resources(cpu=2, memory=3, disk=4))
    )
    assert (sized.cpu, sized.memory, sized.disk) == (2, 3, 4)


async def test_snapshots_go_through_states_and_pages(daytona):
    params = [CreateSnapshotParams(name=name, image="debian:12") for name in "abcd"]
    made = await asyncio.gather(*map(daytona.snapshot.create, params))
    assert {snapshot.state for snapshot in made} == {"active"}
    page = await daytona.snapshot.list(page=2)
    assert (len(page.items), page.total, page.total_pages) == (1, 4, 2), "three a page"
    await daytona.snapshot.delete(await daytona.snapshot.get("a"))
    with pytest.raises(DaytonaError) as caught:
        await daytona.snapshot.get("a")
    assert status(caught) == 404


async def test_names_are_taken_once_and_labels_filter(daytona):
    await daytona.create(CreateSandboxFromSnapshotParams(name="n", labels={"a": "1", "b": "2"}))
    with pytest.raises(DaytonaError) as caught:
        await daytona.create(CreateSandboxFromSnapshotParams(name="n"))
    assert status(caught) == 409
    assert [found.name async for found in daytona.list(ListSandboxesQuery(labels={"a": "1"}))] == ["n"]
    assert [found.name async for found in daytona.list(ListSandboxesQuery(labels={"a": "2"}))] == []


async def test_without_events_the_sdk_asks_for_the_state():
    async with LoopbackDaytona(events=False) as server:
        config = DaytonaConfig(api_key=server.api_key, api_url=server.url, target="loopback")
        async with AsyncDaytona(config) as client:
            machine = await client.create()
            await machine.stop()
            assert machine.state == "stopped" and "GET /api/sandbox/{name}" in server.requests


async def test_another_key_is_no_key(server):
    config = DaytonaConfig(api_key="dtn_other", api_url=server.url, target="loopback")
    async with AsyncDaytona(config) as client:
        with pytest.raises(DaytonaError) as caught:
            await client.create()
    assert status(caught) == 401 and not server.machines


async def test_a_preview_carries_a_websocket(machine):
    await machine.fs.upload_file(ECHO.encode(), "/tmp/echo.py")
    wait = "until (: </dev/tcp/127.0.0.1/8200) 2>/dev/null; do sleep 0.05; done"
    await machine.process.exec(f"python3 /tmp/echo.py >/tmp/log 2>&1 & {wait}")
    link = await machine.get_preview_link(8200)
    headers = {"X-Daytona-Preview-Token": link.token}
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{link.url}/echo", headers=headers) as ws:
        await ws.send_str("hello")
        await ws.send_bytes(bytes(500_000))
        assert (await ws.receive()).data == "hello"
        assert (await ws.receive()).data == bytes(500_000)


async def test_a_port_where_nobody_listens_is_a_bad_gateway(machine):
    link = await machine.get_preview_link(8300)
    async with (
        aiohttp.ClientSession() as http,
        http.get(link.url, headers={"X-Daytona-Preview-Token": link.token}) as answer,
    ):
        assert answer.status == web.HTTPBadGateway.status_code
