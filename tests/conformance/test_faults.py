"""Each fault of each primitive of both clouds: nothing leaks, nothing runs twice, nothing is taken for an answer that is none.

Our backends run on the unmodified SDKs against loopback servers. What a call may do when something goes wrong: give the right
answer all the same, or raise an error of the tree of SandboxError that names the cause, which no outcome turns into a reward.
"""

from __future__ import annotations

import asyncio
import re
import secrets

import pytest
from clouds import NAMES, Cloud, cloud, ended

from agentrl.errors import SandboxError, SandboxGone
from agentrl.lease import collect_garbage
from agentrl.outcomes import RULES, ExitStatus
from agentrl.types import Layer, Resources, SandboxSpec

pytestmark = pytest.mark.slow

LIFETIME_SEC = 300.0
SLOW_SEC = 0.5
NOT_CONNECTED = r"connect|reset|cut|closed|disconnect|stream|end event|time ?out|lost|answer"
LOST = ("unauthorized", "vanish")
"""What is not got over by asking again."""
IMPATIENT = ("hang", "silent")

FAULTS = {
    "throttled": ({"kind": "throttled", "message": "Too Many Requests"}, r"429|slow|too many|rate"),
    "throttled, asked to wait": (
        {"kind": "throttled", "message": "Too Many Requests", "retry_after_sec": 1.0},
        r"429|slow|too many|rate",
    ),
    "error 500": ({"kind": "error", "status": 500, "message": "disk on fire"}, r"500|disk on fire"),
    "error 503": ({"kind": "error", "status": 503, "message": "over capacity"}, r"503|over capacity|busy"),
    "error 404": ({"kind": "error", "status": 404, "message": "Sandbox not found"}, r"404|not found"),
    "page 502": ({"kind": "html", "status": 502}, r"502|Bad Gateway|JSON|Expecting value|proxy"),
    "page 500": ({"kind": "html", "status": 500}, r"500|JSON|Expecting value|proxy"),
    "unauthorized": ({"kind": "unauthorized"}, r"401|unauthori|key|credential"),
    "quota": ({"kind": "quota", "message": "Total memory limit exceeded. Maximum allowed: 10GiB"}, r"limit|quota|429"),
    "duplicate": ({"kind": "duplicate", "message": "the name is taken"}, r"409|taken|exists"),
    "dropped": ({"kind": "dropped"}, NOT_CONNECTED),
    "reset": ({"kind": "reset"}, NOT_CONNECTED),
    "hang": ({"kind": "hang"}, NOT_CONNECTED),
    "slow": ({"kind": "slow", "delay_sec": SLOW_SEC}, r"$."),
    "silent": ({"kind": "silent"}, NOT_CONNECTED),
    "cut": ({"kind": "cut", "after_bytes": 10}, NOT_CONNECTED + "|mangled|size"),
    "vanish": ({"kind": "vanish"}, r"gone|not found|not running|not started|deleted|destroy|" + NOT_CONNECTED),
    "ghost": ({"kind": "ghost"}, r"$."),
    "failed": ({"kind": "failed", "message": "no space left"}, r"fail|no space|ended as error"),
    "stuck": ({"kind": "stuck"}, r"within|time|still|not ready|never|for \d+ s"),
}
"""What happens → how it is asked for, and what an error about it must say (``slow`` and ``ghost`` are no reason for one)."""

ANY_REQUEST = ("throttled", "error 500", "error 503", "page 502", "unauthorized", "dropped", "reset", "hang", "slow")
IN_MACHINE = (*ANY_REQUEST, "vanish")
ONE_OF_A_KIND = ("throttled", "page 502", "unauthorized", "dropped", "hang", "slow")
"""For calls that are made once, whatever comes."""


def each(*whats: str):
    return pytest.mark.parametrize("what", [pytest.param(what, id=what.replace(" ", "-")) for what in whats])


@pytest.fixture(params=NAMES)
async def there(request, tmp_path, monkeypatch):
    what = request.node.callspec.params["what"]
    limits = {"patience_sec": 1.5} if what in IMPATIENT else {"build_sec": 3.0} if what == "stuck" else {}
    async with cloud(request.param, tmp_path, monkeypatch, **limits) as made:
        yield made


def inflict(there: Cloud, what: str, primitive: str, times: int = 1) -> None:
    there.faults.add(primitive=primitive, times=times, **FAULTS[what][0])


def assert_told(answer: object, what: str) -> None:
    """An error names what happened; none was raised for nothing."""
    assert isinstance(answer, SandboxError), answer
    assert re.search(FAULTS[what][1], str(answer), re.IGNORECASE), f"{what} is called {type(answer).__name__}: {answer}"


async def assert_nothing_left(there: Cloud) -> None:
    """After the lease no machine is there."""
    await there.close()
    assert not there.server.machines


def machine(there: Cloud):
    return there.lease.open(SandboxSpec(), rollout_id="r", lifetime_sec=LIFETIME_SEC, patience_sec=100.0)


# ------------------------------------------------------------------------------------------------------ machines


@each(*ANY_REQUEST, "throttled, asked to wait", "page 500", "quota", "duplicate")
async def test_create(there, what):
    async def use() -> bytes:
        async with machine(there) as sandbox:
            return (await sandbox.exec("echo on", timeout_sec=100)).stdout

    inflict(there, what, "create")
    answer = await ended(use())
    assert there.faults.spent
    if answer != b"on\n":
        assert what not in ("throttled", "throttled, asked to wait", "error 503", "dropped", "slow"), answer
        assert_told(answer, what)
    await assert_nothing_left(there)


@each(*ANY_REQUEST, "error 404")
async def test_close(there, what):
    async def use() -> None:
        async with machine(there):
            inflict(there, what, "delete")

    assert await ended(use()) is None, "an error of closing would hide the one of the block"
    await there.close()
    assert there.faults.spent
    if what == "error 404":  # the provider says that it is gone: who looks at its list knows better
        assert len(await collect_garbage(there.backend, runs={"run"})) == 1
    assert not there.server.machines


@each(*ONE_OF_A_KIND, "ghost")
async def test_list(there, what):
    async with machine(there) as sandbox:
        inflict(there, what, "list")
        answer = await ended(there.backend.list({"agentrl-run": "run"}))
        assert there.faults.spent
        if isinstance(answer, SandboxError):
            assert_told(answer, what)
        else:
            assert sandbox.id in {info.id for info in answer}
    await assert_nothing_left(there)


@each("ghost", "dropped", "page 502")
async def test_garbage_is_collected_all_the_same(there, what):
    """Whatever the provider says at first: at the second attempt everything is gone."""
    for _ in range(3):
        await there.backend.create(SandboxSpec(), labels={"agentrl-run": "run"}, lifetime_sec=LIFETIME_SEC)
    inflict(there, what, "list")
    inflict(there, "error 404" if what == "ghost" else what, "delete")
    await ended(collect_garbage(there.backend, runs={"run"}))
    assert not any(garbage.error for garbage in await collect_garbage(there.backend, runs={"run"}))
    assert not there.server.machines


@each(*ONE_OF_A_KIND)
async def test_keep_alive(there, what):
    async with machine(there) as sandbox:
        inflict(there, what, "keep_alive")
        answer = await ended(sandbox.keep_alive())
        if answer is not None:
            assert_told(answer, what)
        assert await ended(sandbox.keep_alive()) is None
    await assert_nothing_left(there)


@each(*ONE_OF_A_KIND, "reset", "failed", "stuck")
async def test_prepare(there, what):
    """One image for all who ask, and after a failure the next one who asks gets one."""
    layers = [Layer(f"faulty-{secrets.token_hex(4)}", ("echo baked > /opt/baked",))]
    inflict(there, what, "prepare")
    answer = await ended(there.backend.prepare(None, Resources(), layers))
    assert there.faults.spent
    if isinstance(answer, SandboxError):
        assert_told(answer, what)
        if what == "stuck":
            return  # and stays so, until the provider gives up
        answer = await there.backend.prepare(None, Resources(), layers)
    async with there.lease.open(SandboxSpec(image=answer), rollout_id="r", lifetime_sec=LIFETIME_SEC) as sandbox:
        assert await sandbox.read_file("/opt/baked") == b"baked\n"
    await assert_nothing_left(there)


# ------------------------------------------------------------------------------------------------------ commands


async def judged(there: Cloud, sandbox_id: str, answer: object, what: str) -> None:
    """The right answer of a command that ran once; for what cannot be got over, an error, and that it ran once at most."""
    if what == "vanish":
        assert isinstance(answer, SandboxGone), answer
        return
    ran = (await there.inside(sandbox_id, "/tmp/count") or b"").count(b"ran\n")
    if what in LOST:
        assert ran <= 1, "it ran twice"
        assert_told(answer, what)
    else:
        assert (answer.exit_code, answer.stdout, answer.timed_out, ran) == (3, b"said\n", False, 1), (answer, ran)


@each(*IN_MACHINE, "silent", "cut")
async def test_short_commands(there, what):
    async with machine(there) as sandbox:
        await sandbox.exec("true", timeout_sec=100)
        inflict(there, what, "exec")
        answer = await ended(sandbox.exec("echo ran >> /tmp/count; echo said; exit 3", timeout_sec=100))
        assert there.faults.spent
        await judged(there, sandbox.id, answer, what)
    await assert_nothing_left(there)


@each(*IN_MACHINE, "silent", "cut")
async def test_long_commands(there, what):
    """The fault comes in mid-command, to whatever is asked next."""
    async with machine(there) as sandbox:
        script = "echo ran >> /tmp/count; until [ -e /tmp/go ]; do sleep 0.05; done; echo said; exit 3"
        running = asyncio.ensure_future(ended(sandbox.exec(script, timeout_sec=100)))
        await there.appears(sandbox.id, "/tmp/count")
        inflict(there, what, "exec", times=2 if what != "vanish" else 1)
        async with asyncio.timeout(100):
            while len(list(there.faults)) == 2:
                await asyncio.sleep(0.02)
        if what == "vanish":
            await running
        else:
            await there.server.machines[sandbox.id].guest.write("/tmp/go", b"")
        await judged(there, sandbox.id, await running, what)
    await assert_nothing_left(there)


# --------------------------------------------------------------------------------------------------------- files


@each(*IN_MACHINE, "cut")
async def test_reads(there, what):
    data = secrets.token_bytes(300_000)
    async with machine(there) as sandbox:
        await sandbox.write_file("/tmp/file", data)
        inflict(there, what, "read")
        answer = await ended(sandbox.read_file("/tmp/file"))
        assert there.faults.spent
        if what in LOST:
            assert_told(answer, what)
        else:
            assert answer == data, answer
    await assert_nothing_left(there)


@each(*IN_MACHINE)
async def test_writes(there, what):
    """There or not, never a part of it; what was there before is not lost halfway."""
    old, new = secrets.token_bytes(200_000), secrets.token_bytes(300_000)
    async with machine(there) as sandbox:
        await sandbox.write_file("/tmp/file", old)
        inflict(there, what, "write")
        answer = await ended(sandbox.write_file("/tmp/file", new))
        assert there.faults.spent
        if what in LOST:
            assert_told(answer, what)
        else:
            assert answer is None, answer
        if sandbox.id in there.server.machines:
            assert await there.inside(sandbox.id, "/tmp/file") in ((new,) if answer is None else (old, new))
        else:
            assert isinstance(answer, SandboxGone), answer
    await assert_nothing_left(there)


def test_no_failure_of_a_machine_has_a_reward():
    failures = (ExitStatus.SANDBOX_LOST, ExitStatus.SANDBOX_FAILED, ExitStatus.IMAGE_UNAVAILABLE)
    assert not any(RULES[status].has_reward for status in failures)
