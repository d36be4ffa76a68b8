"""Each fault at each primitive of a machine: nothing happens twice, nothing is left, and the cause is named or overcome."""

import pytest
from provider import until

from agentrl.api import SandboxError, SandboxGone, SandboxRefused, SandboxSpec, SandboxTransient

LABELS = {"agentrl-run": "r1"}
PASSING = [
    ("throttled", {"status": 429, "retry_after_sec": 0.1}),
    ("throttled", {"status": 429}),
    ("error", {"status": 500}),
    ("error", {"status": 503}),
    ("html", {"status": 502}),
    ("dropped", {}),
    ("reset", {}),
    ("cut", {"after_bytes": 10}),
    ("hang", {}),
    ("slow", {"delay_sec": 0.2}),
]


@pytest.fixture
def request_sec(request, monkeypatch):
    """What never answers is given up soon; all else has time, also on a slow machine."""
    if getattr(request.node, "callspec", None) is None or request.node.callspec.params.get("kind") != "hang":
        return 60
    monkeypatch.setattr("agentrl.tools.wired_line._ANSWER_SEC", 2.0)
    monkeypatch.setattr("agentrl.tools.wired_command.POLL_SEC", 1.0)
    return 1


@pytest.fixture
async def sandbox(backend_for, request_sec):
    return await backend_for(request_sec=request_sec).create(SandboxSpec(), labels=LABELS, lifetime_sec=600)


def each(cases):
    return pytest.mark.parametrize(("kind", "how"), cases, ids=lambda part: part if isinstance(part, str) else "")


@each(PASSING)
async def test_a_command_runs_once_and_its_answer_arrives(server, sandbox, kind, how):
    server.faults.add(kind, "exec", times=1 if kind in ("slow", "hang") else 2, **how)
    result = await sandbox.exec("echo ran >> /tmp/ran; echo out; echo err >&2; exit 7", timeout_sec=60)
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")
    assert server.faults.spent and await sandbox.read_file("/tmp/ran") == b"ran\n"


@each(PASSING)
async def test_a_big_file_arrives_whole_both_ways(server, sandbox, kind, how):
    data = bytes(range(256)) * 2000
    server.faults.add(kind, "write", **how)
    server.faults.add(kind, "read", **how)
    await sandbox.write_file("/tmp/big", data)
    assert await sandbox.read_file("/tmp/big") == data
    assert server.faults.spent


@each([("error", {"status": 500}), ("html", {"status": 503}), ("dropped", {}), ("reset", {}), ("hang", {})])
async def test_closing_says_what_failed_and_works_the_next_time(server, sandbox, kind, how):
    server.faults.add(kind, "delete", times=3, **how)  # the SDK itself repeats what was cut
    for _ in range(4):
        try:
            await sandbox.close()
            break
        except SandboxTransient as error:
            assert "delete" in str(error)
    await until(lambda: not server.machines)
    with pytest.raises(SandboxGone):
        await sandbox.exec("true", timeout_sec=60)


@each([*PASSING[:6], ("hang", {})])
async def test_lists_fail_loudly_rather_than_short(server, backend, backend_for, sandbox, request_sec, kind, how):
    server.faults.add(kind, "list", times=20, **how)  # what was cut is repeated by the SDK and by what is below it
    with pytest.raises(SandboxTransient, match="list machines"):
        await backend_for(request_sec=request_sec).list(LABELS)
    server.faults.clear()
    assert [info.id for info in await backend.list(LABELS)] == [sandbox.id]


@pytest.mark.parametrize("primitive", ["exec", "read", "write"])
async def test_a_machine_that_vanishes_is_gone(server, sandbox, primitive):
    await sandbox.write_file("/tmp/big", bytes(300_000))
    server.faults.add("vanish", primitive, delay_sec=0.05)
    calls = {
        "exec": lambda: sandbox.exec("sleep 600", timeout_sec=900),
        "read": lambda: sandbox.read_file("/tmp/big"),
        "write": lambda: sandbox.write_file("/tmp/other", bytes(300_000)),
    }
    with pytest.raises(SandboxGone):
        await calls[primitive]()
        await sandbox.exec("sleep 600", timeout_sec=900)  # a small transfer may be over before
    await sandbox.close()


async def test_a_key_that_expires_in_the_middle_is_named(server, sandbox):
    server.faults.add("unauthorized", "exec")
    with pytest.raises(SandboxRefused, match="DAYTONA_API_KEY"):
        await sandbox.exec("true", timeout_sec=60)


async def test_a_port_and_a_sign_of_life_name_their_causes(server, sandbox):
    for primitive, ask in (("port", lambda: sandbox.port_url(80)), ("keep_alive", sandbox.keep_alive)):
        server.faults.add("error", primitive, status=502)
        with pytest.raises(SandboxTransient, match=sandbox.id):
            await ask()
        server.faults.add("quota", primitive, message="strange words")
        with pytest.raises(SandboxError, match="strange words"):
            await ask()
