"""The loopback server as the unmodified SDK sees it: what was measured at E2B's own daemons must hold here."""

import asyncio
import io
import time

import aiohttp
import e2b
import pytest
from provider import until


class Account:
    """The SDK, led to the server."""

    def __init__(self, server):
        self.server = server
        self.options = {"api_key": server.api_key, "api_url": server.url, "sandbox_url": server.url}

    async def create(self, **wanted):
        return await e2b.AsyncSandbox.create(**{"timeout": 600, **wanted}, **self.options)


@pytest.fixture
async def account(server):
    return Account(server)


@pytest.fixture
async def box(account):
    return await account.create()


def not_running():
    return getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)


# ----------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("exit 3", 3, "exit status 3"),
        ("kill -9 $$", -1, "signal: killed"),
        ("no-such-program", 127, "exit status 127"),
    ],
)
async def test_how_commands_end(box, command, code, error):
    with pytest.raises(e2b.CommandExitException) as caught:
        await box.commands.run(command)
    assert (caught.value.exit_code, caught.value.error) == (code, error)


async def test_streams_environment_user_and_folder(account):
    box = await account.create(envs={"A": "1"})
    result = await box.commands.run(
        "echo $A $B; id -un; pwd; echo err >&2; cat", envs={"B": "2"}, user="root", cwd="/tmp"
    )
    assert result.stdout == "1 2\nroot\n/tmp\n" and result.stderr == "err\n" and not result.error
    assert (await box.commands.run("pwd; echo $HOME")).stdout.split()[1] in ("/home/user", "/root")
    with pytest.raises(e2b.InvalidArgumentException, match="cwd '/nope' does not exist"):
        await box.commands.run("true", cwd="/nope")
    with pytest.raises(e2b.AuthenticationException, match="invalid user"):
        await box.commands.run("true", user="stranger")
    with pytest.raises(e2b.InvalidArgumentException, match="argument list too long"):
        await box.commands.run("x" * 200_000)


async def test_text_cut_between_events_and_megabytes(box):
    said = []
    result = await box.commands.run("for i in $(seq 40000); do printf ü; done", on_stdout=said.append)
    assert result.stdout == "ü" * 40_000 and "".join(said) == result.stdout
    result = await box.commands.run("head -c 5000000 /dev/zero | tr '\\0' x")
    assert len(result.stdout) == 5_000_000


async def test_a_timeout_kills_the_command_but_not_its_children(box):
    timeout = 1
    while not await box.files.exists("/tmp/child"):  # a slow machine needs more time to have one
        with pytest.raises(e2b.TimeoutException, match="deadline exceeded"):
            script = "setsid sleep 600 >/dev/null 2>&1 & echo $! >/tmp/new; mv /tmp/new /tmp/child; sleep 600"
            await box.commands.run(script, timeout=timeout)
        timeout *= 2
    while await box.commands.list():
        await asyncio.sleep(0.02)
    await box.commands.run("kill -0 $(cat /tmp/child)")


async def test_who_holds_the_output_keeps_the_command_open(box):
    command = asyncio.ensure_future(
        box.commands.run("(until [ -e /tmp/go ]; do sleep 0.02; done; echo late) & echo done")
    )
    await box.commands.run("true")
    assert not command.done()
    await box.files.write("/tmp/go", "")
    assert (await command).stdout == "done\nlate\n"


async def test_commands_can_be_fed_killed_listed_and_found_again(box):
    handle = await box.commands.run("cat; echo end", background=True, stdin=True)
    assert [info.pid for info in await box.commands.list()] == [handle.pid]
    await box.commands.send_stdin(handle.pid, "hello\n")
    await handle.close_stdin()
    assert (await handle.wait()).stdout == "hello\nend\n"
    waiting = await box.commands.run("until [ -e /tmp/go ]; do sleep 0.02; done; exit 5", background=True)
    await waiting.disconnect()
    again = await box.commands.connect(waiting.pid)
    await box.files.write("/tmp/go", "")
    with pytest.raises(e2b.CommandExitException) as caught:
        await again.wait()
    assert caught.value.exit_code == 5
    with pytest.raises(e2b.CommandExitException):
        await (await box.commands.connect(waiting.pid)).wait()  # exits are kept
    sleeping = await box.commands.run("sleep 60", background=True)
    assert await sleeping.kill() and not await box.commands.kill(99999)
    with pytest.raises(e2b.NotFoundException):
        await box.commands.connect(99999)


# -------------------------------------------------------------------------------------------------------- files


async def test_files_go_both_ways(box):
    data = bytes(range(256)) * 5000
    for content in (data, io.BytesIO(data)):
        await box.files.write("/tmp/a b/ü", content)
        assert bytes(await box.files.read("/tmp/a b/ü", format="bytes")) == data
    written = await box.files.write_files([{"path": "/tmp/one", "data": b"1"}, {"path": "rel/two", "data": "2"}])
    assert written[0].path == "/tmp/one" and written[1].path.endswith("/rel/two")
    stream = await box.files.read("/tmp/a b/ü", format="stream")
    assert b"".join([part async for part in stream]) == data


async def test_what_files_refuse(box):
    with pytest.raises(e2b.NotFoundException, match="path '/none' does not exist"):
        await box.files.read("/none")
    for call in (box.files.read("/tmp"), box.files.write("/tmp", "x"), box.files.list("/etc/passwd")):
        with pytest.raises(e2b.InvalidArgumentException):
            await call


async def test_the_file_system_service(box):
    assert await box.files.make_dir("/tmp/d/e") is True
    assert await box.files.make_dir("/tmp/d/e") is False
    await box.files.write("/tmp/d/e/f", "12345")
    await box.commands.run("ln -s f /tmp/d/e/link")
    assert [entry.name for entry in await box.files.list("/tmp/d", depth=2)] == ["e", "f", "link"]
    info = await box.files.get_info("/tmp/d/e/f")
    assert (info.size, info.permissions, info.type.value) == (5, "-rw-r--r--", "file")
    assert (await box.files.get_info("/tmp/d/e/link")).symlink_target == "f"
    await box.files.rename("/tmp/d/e/f", "/tmp/g")
    assert await box.files.exists("/tmp/g") and not await box.files.exists("/tmp/d/e/f")
    await box.files.remove("/tmp/d")
    assert not await box.files.exists("/tmp/d")
    with pytest.raises(e2b.NotFoundException):
        await box.files.rename("/tmp/none", "/tmp/x")


async def test_signed_addresses_need_no_token(server, box):
    await box.files.write("/tmp/x", "signed")
    route = {"E2b-Sandbox-Id": box.sandbox_id}
    async with aiohttp.ClientSession(headers=route) as http:
        async with http.get(box.download_url("/tmp/x")) as answer:
            assert await answer.text() == "signed"
        for url in (f"{server.url}/files?path=/tmp/x", box.download_url("/tmp/x", use_signature_expiration=-5)):
            async with http.get(url) as answer:
                assert answer.status == 401


# ----------------------------------------------------------------------------------------------- the control plane


async def test_lifetimes_and_death(server, account, box):
    assert await box.is_running()
    await box.set_timeout(1)
    with pytest.raises(not_running()):
        await box.commands.run("sleep 600")  # the stream is cut with its machine
    assert not await box.is_running() and await box.kill() is False and not server.machines
    for call in (box.files.read("/etc/passwd"), box.commands.run("true")):
        with pytest.raises(not_running(), match="was not found"):
            await call
    with pytest.raises(e2b.SandboxException):
        await account.create(timeout=25 * 3600)


async def test_lists_have_filters_and_pages(server, account):
    for number in range(server.page_size + 1):
        await account.create(metadata={"of": "me x/y&z", "n": str(number)})
    await account.create(metadata={"of": "them"})
    pages = e2b.AsyncSandbox.list(query=e2b.SandboxQuery(metadata={"of": "me x/y&z"}), **account.options)
    sizes, found = [], set()
    while pages.has_next:
        page = await pages.next_items()
        sizes.append(len(page))
        found |= {info.metadata["n"] for info in page}
    assert sizes == [server.page_size, 1] and found == {str(n) for n in range(server.page_size + 1)}


async def test_the_same_idempotency_key_is_the_same_machine(server, account):
    import inspect

    if "idempotency_key" not in inspect.signature(e2b.AsyncSandbox.create).parameters:
        pytest.skip("this SDK has no idempotency keys")
    boxes = await asyncio.gather(*(account.create(idempotency_key="once") for _ in range(2)))
    assert len(server.machines) == 1 and boxes[0].sandbox_id == boxes[1].sandbox_id


async def test_the_key_and_the_token_are_asked_for(server, box):
    with pytest.raises(e2b.AuthenticationException):
        await e2b.AsyncSandbox.create(api_key="e2b_" + "0" * 40, api_url=server.url, sandbox_url=server.url)
    async with (
        aiohttp.ClientSession(headers={"E2b-Sandbox-Id": box.sandbox_id}) as http,
        http.post(f"{server.url}/process.Process/List", json={}) as answer,
    ):
        assert answer.status == 401


async def test_templates_are_built_of_their_steps(account, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("F")
    steps = (
        e2b.AsyncTemplate(file_context_path=str(tmp_path))
        .from_image("debian:12")
        .copy("in/file", "/opt/deep/file", user="root", mode=0o700)
        .set_envs({"BAKED": "yes"})
        .run_cmd("echo $BAKED > /opt/ran", user="root")
        .set_workdir("/opt")
    )
    options = {name: value for name, value in account.options.items() if name != "sandbox_url"}
    await e2b.AsyncTemplate.build(steps, alias="mine", cpu_count=1, memory_mb=1024, **options)
    on_top = e2b.AsyncTemplate().from_template("mine").run_cmd("echo top > /opt/top", user="root")
    await e2b.AsyncTemplate.build(on_top, alias="on-top", **options)
    box = await account.create(template="on-top")
    result = await box.commands.run("pwd; cat ran top; stat -c %a deep/file; echo $BAKED", user="root")
    assert result.stdout == "/opt\nyes\ntop\n700\nyes\n"
    with pytest.raises(e2b.BuildException, match="exit status 4"):
        await e2b.AsyncTemplate.build(e2b.AsyncTemplate().from_base_image().run_cmd("exit 4"), alias="bad", **options)


# -------------------------------------------------------------------------------------------------------- ports


WEBSOCKET_ECHO = """
import base64, hashlib, socket
server = socket.create_server(("127.0.0.1", 8123))
open("/tmp/listening", "x").close()
while True:
    peer, _ = server.accept()
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        head += peer.recv(65536)
    key = next(l.split(b": ")[1] for l in head.split(b"\\r\\n") if l.lower().startswith(b"sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    peer.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                 b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
    frame = peer.recv(65536)
    size, mask = frame[1] & 127, frame[2:6]
    data = bytes(b ^ mask[i % 4] for i, b in enumerate(frame[6:6 + size]))
    peer.sendall(bytes([frame[0], len(data)]) + data)
    peer.close()
"""


async def test_ports_inside_speak_websocket(server, account):
    box = await account.create()
    await box.files.write("/tmp/echo.py", WEBSOCKET_ECHO)
    await box.commands.run("python3 /tmp/echo.py", background=True, timeout=0)
    host = {"Host": box.get_host(8123)}
    await box.commands.run("until [ -e /tmp/listening ]; do sleep 0.02; done")
    async with aiohttp.ClientSession(headers=host) as http, http.ws_connect(server.url) as socket:
        await socket.send_bytes(b"over there")
        assert await socket.receive_bytes() == b"over there"


async def test_a_private_port_wants_its_token(server, account):
    box = await account.create(network={"allow_public_traffic": False})
    headers = {"Host": box.get_host(80)}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.get(server.url) as answer:
            assert answer.status == 403
        token = {"e2b-traffic-access-token": box.traffic_access_token}
        async with http.get(server.url, headers=token) as answer:
            assert answer.status == 502 and "port is not open" in await answer.text()


# ------------------------------------------------------------------------------------------------------- faults


async def test_a_cut_answer(server, box):
    server.faults.add("cut", "exec", after_bytes=4)
    said = []
    with pytest.raises(Exception) as caught:
        await box.commands.run("echo hello world; sleep 60", on_stdout=said.append)
    assert not isinstance(caught.value, e2b.CommandExitException) and "".join(said) == "hell"
    server.faults.add("cut", "read", after_bytes=10)
    with pytest.raises(Exception, match=r".+"):
        await box.files.read("/etc/passwd")
    assert server.faults.spent


async def test_lost_answers_and_what_was_done(server, account, box):
    server.faults.add("reset", "exec")
    with pytest.raises(Exception, match=r".+"):
        await box.commands.run("touch /tmp/done")
    await box.commands.run("until [ -e /tmp/done ]; do sleep 0.02; done")
    server.faults.add("dropped", "exec")
    with pytest.raises(Exception, match=r".+"):
        await box.commands.run("touch /tmp/not")
    assert not await box.files.exists("/tmp/not")


async def test_throttling_is_passed_on_with_its_wish(server):
    server.faults.add("throttled", "list", retry_after_sec=7)
    async with (
        aiohttp.ClientSession(headers={"X-API-KEY": server.api_key}) as http,
        http.get(f"{server.url}/v2/sandboxes") as answer,
    ):
        assert answer.status == 429 and answer.headers["Retry-After"] == "7"
        assert (await answer.json())["code"] == 429


async def test_it_can_be_down_and_come_back(server, box):
    async with server.down():
        with pytest.raises(aiohttp.ClientConnectorError):
            async with aiohttp.ClientSession() as http, http.get(server.url):
                pass
        with pytest.raises(Exception, match=r".+"):
            await box.commands.run("true")
    assert (await box.commands.run("echo back")).stdout == "back\n"


async def test_nothing_is_left_when_it_closes():
    from agentrl.testing.loopback_e2b import LoopbackE2B

    async with LoopbackE2B() as server:
        account = Account(server)
        box = await account.create()
        await box.commands.run("sleep 60", background=True)
        folder = server.folder
        pids = [machine.guest.pid for machine in server.machines.values()]
    assert not folder.exists()
    for pid in pids:
        await until(lambda pid=pid: not _alive(pid))


def _alive(pid):
    import os

    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_clock_of_a_timeout(account):
    began = time.monotonic()
    box = await account.create(timeout=1)
    while await box.is_running():
        await asyncio.sleep(0.05)
    assert time.monotonic() - began >= 1
