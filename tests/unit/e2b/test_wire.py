"""The wire alone: what a script says and how it ends, each call tried once."""

import asyncio
import base64

import pytest
from e2b_account import settings_for

from agentrl.api import SandboxError, SandboxGone, SandboxThrottled
from agentrl_e2b.sdk import Sdk
from agentrl_e2b.wire import E2BWire, _exit_code, shielded


@pytest.fixture
async def wire_for(server):
    """Makes wires to new machines."""
    sdk = Sdk(settings_for(server))

    async def make(env=None, user="root"):
        box = await sdk.sandboxes.create(timeout=600, envs=shielded(env or {}), **sdk.options())
        return E2BWire(sdk, box, user=user)

    return make


async def say(wire, script, *, env=None, user=None, timeout_sec=60.0):
    return await wire.run(script, env=env or {}, timeout_sec=timeout_sec, user=user)


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
async def test_exit_codes(wire_for, code):
    assert await say(await wire_for(), f"echo said; exit {code}") == (code, b"said\n")


@pytest.mark.parametrize(("signal", "code"), [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("ABRT", 134)])
async def test_signals(wire_for, signal, code):
    assert (await say(await wire_for(), f"kill -{signal} $$"))[0] == code


@pytest.mark.parametrize(
    ("error", "code"),
    [("signal: killed", 137), ("signal: terminated", 143), ("signal: segmentation fault (core dumped)", 139)],
)
def test_signals_in_the_words_of_the_daemon(error, code):
    assert _exit_code(-1, error) == code


@pytest.mark.parametrize("error", [None, "", "signal: from space", "exit status 3"])
def test_an_unknown_end_is_no_exit_code(error):
    with pytest.raises(SandboxError, match="unknown"):
        _exit_code(-1, error)


async def test_the_environment_survives_the_login_shell(wire_for):
    wire = await wire_for({"PATH": "/mine:/usr/bin:/bin", "OURS": "1"})
    assert await say(wire, "echo $PATH $OURS") == (0, b"/mine:/usr/bin:/bin 1\n")
    assert await say(wire, "echo $PATH $THEIRS", env={"PATH": "/theirs:/bin", "THEIRS": "a b"}) == (
        0,
        b"/theirs:/bin a b\n",
    )
    assert await say(wire, "env | grep -c AGENTRL_PATH") == (1, b"0\n")


async def test_users_also_without_a_home(wire_for):
    wire = await wire_for()
    assert await say(wire, "pwd; id -un") == (0, b"/root\nroot\n")
    code, said = await say(wire, "pwd; id -un", user="nobody")
    assert (code, said.split()[0]) == (0, b"/") or said.endswith(b"root\n")
    assert await say(await wire_for(user=None), "id -un", user="root") == (0, b"root\n")


async def test_files_of_any_size(wire_for):
    wire = await wire_for()
    for size in (0, 1, 3_000_000):
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        await wire.put("/tmp/file", data)
        assert await wire.get("/tmp/file") == data
    code, said = await say(wire, "head -c 3 /tmp/file | base64")
    assert (code, base64.b64decode(said)) == (0, bytes([0, 1, 2]))


async def test_each_call_is_tried_once(server, wire_for):
    wire = await wire_for()
    for kind, error in (("throttled", SandboxThrottled), ("reset", SandboxError), ("dropped", SandboxError)):
        server.requests.clear()
        server.faults.add(kind, "exec")
        with pytest.raises(error) as caught:
            await say(wire, "echo x >> /tmp/runs")
        assert type(caught.value) is error, caught.value
        assert server.requests.count("POST /process.Process/Start") == 1
    wait = "until [ -s /tmp/runs ]; do sleep 0.05; done"  # Nobody waited for what was reset.
    assert (await say(wire, f"{wait}; cat /tmp/runs"))[1] == b"x\n", "only what was reset had run"


async def test_a_death_during_a_command_is_told_from_a_cut_connection(server, wire_for):
    wire = await wire_for()
    server.faults.add("cut", "exec")
    with pytest.raises(SandboxError) as caught:
        await say(wire, "echo x; sleep 60")
    assert type(caught.value) is SandboxError
    server.faults.add("vanish", "exec", delay_sec=0.2)
    with pytest.raises(SandboxGone):
        await say(wire, "sleep 60")
    other = await wire_for()
    server.faults.add("vanish", "exec", delay_sec=0.2)
    server.faults.add("error", "health", status=500, times=10)  # then the SDK alone cannot tell
    with pytest.raises(SandboxGone):
        await say(other, "sleep 60")
    server.faults.clear()
    for call in (say(wire, "true"), wire.put("/tmp/x", b"x"), wire.get("/etc/passwd")):
        with pytest.raises(SandboxGone):
            await call


async def test_the_daemon_ends_a_script_that_takes_too_long(wire_for, monkeypatch):
    monkeypatch.setattr("agentrl_e2b.wire.GRACE_SEC", 60.0)
    with pytest.raises(SandboxError, match="timeout"):
        await say(await wire_for(), "sleep 60", timeout_sec=0.5)


async def test_a_script_that_nothing_is_heard_of(server, wire_for, monkeypatch):
    monkeypatch.setattr("agentrl_e2b.wire.GRACE_SEC", 0.2)
    server.faults.add("silent", "exec")
    with pytest.raises(SandboxError) as caught:
        await say(await wire_for(), "true", timeout_sec=0.3)
    assert type(caught.value) is SandboxError


async def test_a_cancelled_call_says_nothing_more(wire_for, caplog):
    wire = await wire_for()
    running = asyncio.create_task(say(wire, "touch /tmp/on; sleep 60"))
    await say(wire, "until [ -e /tmp/on ]; do sleep 0.02; done")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await say(wire, "echo still") == (0, b"still\n")
    import gc

    gc.collect()
    assert "never retrieved" not in caplog.text
