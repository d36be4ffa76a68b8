"""Over a bad wire a command still runs once, to its end, and says the truth about it."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wired_machines import FaultyWire, LocalWire, gone, lost_after, lost_before, shortened, throttled, wired

from agentrl.errors import (
    FileDenied,
    FileMissing,
    SandboxError,
    SandboxGone,
    SandboxRefused,
    SandboxThrottled,
    SandboxTransient,
)
from agentrl.tools.processes import kill_agent_processes

ALL_BYTES = bytes(range(256))
FAULTS = {"before": lost_before(), "after": lost_after(), "throttled": throttled(0.01), "shortened": shortened()}
CAP = 10 << 20


def faulty(sandbox, *faults):
    return wired(sandbox, FaultyWire(LocalWire(sandbox), *faults))


async def says(sandbox, command, **options):
    return (await sandbox.exec(command, timeout_sec=60, **options)).stdout


# ------------------------------------------------------------------------------------------------------ round trips


async def test_a_short_command_is_one_call(sandbox):
    wire = LocalWire(sandbox)
    result = await wired(sandbox, wire).exec(
        "cat; echo $A >&2; exit 9", env={"A": "b"}, stdin=b"in", cwd="/", timeout_sec=60
    )
    assert (result.exit_code, result.stdout, result.stderr) == (9, b"in", b"b\n")
    assert wire.calls == ["run"]


async def test_small_files_are_one_call_each(sandbox):
    wire = LocalWire(sandbox)
    machine = wired(sandbox, wire)
    await machine.write_file("/tmp/a/b", ALL_BYTES * 100)
    assert await machine.read_file("/tmp/a/b") == ALL_BYTES * 100
    assert wire.calls == ["run", "run"]


# ----------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_launch_that_is_repeated_starts_one_command(sandbox, fault):
    machine = faulty(sandbox, *[FAULTS[fault]] * 3)
    result = await machine.exec("echo once >>/tmp/log; cat /tmp/log; exit 7", timeout_sec=60)
    assert (result.exit_code, result.stdout) == (7, b"once\n")


async def test_a_launch_that_arrives_while_the_first_still_runs_starts_nothing(sandbox):
    async def cut_on_the_way(call):
        asyncio.get_running_loop().create_task(call())
        await says(sandbox, "until [ -e /tmp/log ]; do sleep 0.01; done")
        raise SandboxError("cut")

    machine = faulty(sandbox, cut_on_the_way, cut_on_the_way)
    assert await says(machine, "echo once >>/tmp/log; sleep 0.3; cat /tmp/log") == b"once\n"


@pytest.mark.parametrize("fault", FAULTS)
async def test_files_survive_faults_at_every_call(sandbox, fault):
    data = ALL_BYTES * 1000
    for place in range(4):
        machine = faulty(sandbox, *[passing] * place, FAULTS[fault])
        try:
            await machine.write_file("/tmp/file", data)
        except SandboxError:
            assert fault == "shortened"
        assert await sandbox.read_file("/tmp/file") == data
        machine = faulty(sandbox, *[passing] * place, FAULTS[fault])
        try:
            assert await machine.read_file("/tmp/file") == data
        except SandboxError:
            assert fault == "shortened", "only what was cut without a word may be an error"


async def passing(call):
    return await call()


async def test_megabytes_survive_faults_at_every_call(sandbox):
    data = secrets.token_bytes(300_000)
    for place in range(8):
        machine = faulty(sandbox, *[passing] * place, lost_after())
        assert await says(machine, "tee /dev/stderr", stdin=data) == data


@pytest.fixture
def impatient(monkeypatch):
    for name in ("LATE_SEC", "_CANCEL_SEC"):
        monkeypatch.setattr(f"agentrl.tools.wired_command.{name}", 0.2)


@pytest.mark.usefixtures("impatient")
async def test_nobody_answering_is_an_unknown_end(sandbox):
    machine = faulty(sandbox, *[lost_after()] * 10_000)
    with pytest.raises(SandboxError) as caught:
        await machine.exec("echo once >>/tmp/log; exit 3", timeout_sec=0.5)
    assert not isinstance(caught.value, SandboxTransient)
    assert await says(sandbox, "cat /tmp/log") == b"once\n"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault,error", [("before", SandboxTransient), ("throttled", SandboxThrottled)])
async def test_what_never_arrived_never_ran(sandbox, fault, error):
    machine = faulty(sandbox, *[FAULTS[fault]] * 10_000)
    with pytest.raises(error):
        await machine.exec("touch /tmp/ran", timeout_sec=0.1)
    assert await says(sandbox, "ls /tmp") == b""


async def test_throttling_beyond_the_deadline_is_said_at_once(sandbox):
    with pytest.raises(SandboxThrottled):
        await faulty(sandbox, throttled(3600)).exec("true", timeout_sec=60)


async def test_a_machine_that_is_gone_is_not_asked_again(sandbox):
    wire = FaultyWire(LocalWire(sandbox), gone(), passing)
    with pytest.raises(SandboxGone):
        await wired(sandbox, wire).exec("true", timeout_sec=60)
    assert wire.faults == [passing]


# ------------------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    "tamper",
    {
        "its shell is killed": "kill -KILL $PPID; sleep 1",
        "its marker is written by somebody else": 'echo "12 0 32 whole 32 whole\n0\n0" >>"$n"; kill -KILL $PPID; sleep 1',
        "its folder is removed": 'rm -rf "$d"; kill -KILL $PPID; sleep 1',
        "its marker is a FIFO": 'rm "$n"; mkfifo "$n"; kill -KILL $PPID; sleep 1',
        "it speaks in the place of its shell": "echo 'ended 12 0 32 whole 32 whole\n-\n.' >/proc/$(ps -o ppid= $PPID | tr -d ' ')/fd/1",
    }.items(),
    ids=lambda case: case[0],
)
async def test_an_exit_code_that_nobody_vouches_for_is_an_error(sandbox, tamper):
    with pytest.raises(SandboxError):
        await wired(sandbox).exec(
            f"d=$(echo /tmp/.agentrl-*) n=$d/${{AGENTRL_TREE%%.*}}; {tamper[1]}; exit 3", timeout_sec=60
        )


async def test_the_command_does_not_learn_the_key(sandbox):
    wire = LocalWire(sandbox)
    keys = []
    run = wire.run

    async def spied(script, *, env, **options):
        keys.append(env.get("AGENTRL_KEY"))
        return await run(script, env=env, **options)

    wire.run = spied
    seen = await says(
        wired(sandbox, wire), "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /tmp/.agentrl*/* 2>/dev/null; sleep 0.2"
    )
    assert seen and not any(part.encode() in seen for part in keys[0].split())


async def test_a_command_meets_a_clean_room(sandbox):
    script = "grep Sig[IB] /proc/self/status; ls /proc/self/fd; ps -o pgid= $$; echo $$"
    clean = (await says(sandbox, script)).split(b"\n")
    result = (await says(wired(sandbox), script)).split(b"\n")
    assert result[:-3] == clean[:-3]
    assert result[-3].strip() == result[-2].strip(), "it has no process group of its own"
    names = {line.split(b"=")[0] for line in (await says(wired(sandbox), "env")).splitlines()}
    ours = {line.split(b"=")[0] for line in (await says(sandbox, "env")).splitlines()}
    assert names - ours == {b"AGENTRL_TREE"}


async def test_killing_its_own_group_is_its_own_end(sandbox):
    assert (await wired(sandbox).exec("trap '' TERM; kill -KILL 0", timeout_sec=60)).exit_code == 137


async def test_a_long_command_is_noticed_and_polled(sandbox, monkeypatch):
    monkeypatch.setattr("agentrl.tools.wired_command.POLL_SEC", 0.2)
    wire = LocalWire(sandbox)
    command = "until [ -e /tmp/go ]; do sleep 0.02; done; echo late; exit 5"
    running = asyncio.create_task(wired(sandbox, wire).exec(command, timeout_sec=60))
    while len(wire.calls) <= 2:
        assert not running.done()
        await asyncio.sleep(0.01)
    await sandbox.write_file("/tmp/go", b"")
    result = await running
    assert (result.exit_code, result.stdout) == (5, b"late\n")


async def test_endless_output_stays_small_on_disk_and_its_tail_is_kept(sandbox):
    machine = wired(sandbox)
    running = asyncio.create_task(machine.exec("yes | head -c 300000000; echo END; touch /tmp/off", timeout_sec=600))
    most = 0
    while not running.done():
        most = max(most, int((await says(sandbox, "du -sk /tmp | cut -f1")).split()[0]))
    result = await running
    assert result.truncated and len(result.stdout) == CAP and result.stdout.endswith(b"y\nEND\n")
    assert most < 100_000, f"{most} KiB"


async def test_killing_all_spares_those_that_keep_our_own_output(sandbox):
    machine = wired(sandbox)
    await says(machine, "exec >/dev/null 2>&1; sleep 98765 & sleep 98765 &")
    # What launched them has answered, but may still be writing that down.
    await says(sandbox, "while grep -qsxz '[-]p' /proc/[0-9]*/cmdline; do sleep 0.02; done")
    assert await kill_agent_processes(machine) == 2
    assert await says(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -cx '[s]leep' || :") == b"0\n"


async def test_a_child_that_floods_the_pipe_holds_nobody_up(sandbox):
    result = await wired(sandbox).exec("echo mine; yes & exit 4", timeout_sec=60)
    assert result.exit_code == 4


async def test_cancelling_before_the_launch_arrived_starts_nothing(sandbox):
    arrived, on_the_way = asyncio.Event(), asyncio.Event()
    late = []

    async def slow(call):
        on_the_way.set()
        late.append(call)
        await arrived.wait()

    machine = faulty(sandbox, slow)
    task = asyncio.create_task(machine.exec("touch /tmp/ran", timeout_sec=60))
    await on_the_way.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await late[0]()
    assert await says(sandbox, "ls /tmp") == b""


async def test_closing_ends_calls_under_way_and_deletes_once(sandbox):
    deleted = []

    async def close():
        deleted.append(1)
        if len(deleted) == 1:
            raise SandboxTransient("busy")

    machine = wired(sandbox)
    machine._delete = close
    under_way = asyncio.create_task(machine.exec("sleep 600", timeout_sec=900))
    await says(sandbox, "until grep -qx sleep /proc/[0-9]*/comm; do sleep 0.02; done")
    with pytest.raises(SandboxTransient):
        await machine.close()
    for call in (
        under_way,
        machine.read_file("/etc/passwd"),
        machine.keep_alive(),
        machine.exec("true", timeout_sec=60),
    ):
        with pytest.raises(SandboxGone):
            await call
    await asyncio.gather(machine.close(), machine.close())
    assert len(deleted) == 2


# ------------------------------------------------------------------------------------------------------------ bytes


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    stdin=st.binary(max_size=300),
    word=st.binary(min_size=1, max_size=40).filter(lambda word: 0 not in word),
    value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
)
async def test_bytes_arrive_and_come_back(sandbox, stdin, word, value):
    argv = ["bash", "-c", 'printf "%s" "$1" "$WORD" >&2; cat', "-", word.decode(errors="surrogateescape")]
    result = await wired(sandbox).exec(argv, stdin=stdin, env={"WORD": value}, timeout_sec=60)
    assert (result.stdout, result.stderr) == (stdin, word + value.encode())


async def test_names_and_folders_of_any_bytes(sandbox):
    machine = wired(sandbox)
    path = "/tmp/a 'b' \"c\" $d \\e\n\té\udcff/-x *"
    await machine.write_file(path, b"x", mode=0o640)
    assert await machine.read_file(path) == b"x"
    assert await sandbox.read_file(path) == b"x"
    folder = path.rpartition("/")[0]
    assert (
        await says(machine, "pwd; stat -c %a ./*", cwd=folder) == folder.encode(errors="surrogateescape") + b"\n640\n"
    )


@pytest.mark.parametrize("size", [0, 1, 59_999, 60_000, 60_001, 89_968, 89_969, 180_000, 180_001])
async def test_sizes_around_the_limits(sandbox, size):
    machine, data = wired(sandbox), secrets.token_bytes(size)
    await machine.write_file("/tmp/file", data)
    assert await machine.read_file("/tmp/file", max_bytes=size) == data
    assert await says(machine, "cat", stdin=data) == data
    result = await machine.exec("cat /tmp/file | tee /dev/stderr", timeout_sec=60)
    assert (result.stdout, result.stderr, result.truncated) == (data, data, False)


@pytest.mark.parametrize("size", [1967, 1968, 1969, 1999, 2000, 2001])
@pytest.mark.parametrize("byte", [b"x", b"\\", b"\0", b"\n", b"\xff"])
async def test_output_around_the_size_that_takes_no_program(sandbox, byte, size):
    result = await wired(sandbox).exec("tee /dev/stderr", stdin=byte * size, timeout_sec=30)
    assert (result.stdout, result.stderr, result.truncated) == (byte * size, byte * size, False)


async def test_one_stream_may_be_short_and_the_other_large(sandbox):
    short, large = b"\\t =told\n", secrets.token_bytes(200_000)
    await sandbox.write_file("/tmp/large", large)
    for command, expected in (
        ("cat; cat /tmp/large >&2", (short, large)),
        ("cat >&2; cat /tmp/large", (large, short)),
    ):
        result = await wired(sandbox).exec(command, stdin=short, timeout_sec=30)
        assert (result.stdout, result.stderr) == expected


async def test_whoever_removes_our_files_meanwhile_loses_nothing(sandbox):
    machine = wired(sandbox)
    for _ in range(2):
        result = await machine.exec("echo said; rm -rf /tmp/.agentrl-*; exit 3", timeout_sec=30)
        assert (result.exit_code, result.stdout) == (3, b"said\n")


async def test_a_name_that_no_shell_can_hold_is_refused(sandbox):
    for env in ({"a.b": "x"}, {"": "x"}, {"A": "\0"}):
        with pytest.raises(SandboxRefused):
            await wired(sandbox).exec("true", env=env, timeout_sec=60)
    with pytest.raises(SandboxRefused):
        await wired(sandbox).exec("echo \0", timeout_sec=60)


async def test_variables_of_any_name_reach_the_command_only(sandbox):
    env = {
        "PATH": "/nowhere",
        "_folder": "a",
        "LD_PRELOAD": "/nowhere.so",
        "IFS": "x",
        "BASH_ENV": "/nowhere",
        "end": "1",
    }
    script = 'echo "$PATH,$_folder,$LD_PRELOAD,$BASH_ENV,$end"'
    assert await says(wired(sandbox), script, env=env) == b"/nowhere,a,/nowhere.so,/nowhere,1\n"


# ------------------------------------------------------------------------------------------------------------ files


async def test_files_that_are_not_there_say_why(sandbox):
    machine = wired(sandbox)
    await says(sandbox, "echo x >/tmp/file; ln -s /nowhere /tmp/dangling; ln -s /tmp/file /tmp/link; mkfifo /tmp/fifo")
    for path, error in (
        ("/tmp/a/b/c", FileMissing),
        ("/tmp/dangling", FileMissing),
        ("/tmp/file/below", FileDenied),
        ("relative", FileDenied),
        ("/tmp/\0", FileDenied),
    ):
        with pytest.raises(error):
            await machine.read_file(path)
    assert await machine.read_file("/tmp/link") == b"x\n"
    assert b"Name:" in await machine.read_file("/proc/self/status")


async def test_a_link_to_a_folder_is_replaced(sandbox):
    machine = wired(sandbox)
    await says(sandbox, "mkdir /tmp/folder; ln -s folder /tmp/link")
    await machine.write_file("/tmp/link", b"x")
    assert await says(sandbox, "ls /tmp/folder; cat /tmp/link") == b"x"


async def test_new_parents_can_be_entered_by_everybody(sandbox):
    await wired(sandbox).write_file("/tmp/new/parent/file", b"", mode=0o600)
    assert await says(sandbox, "stat -c %a /tmp/new /tmp/new/parent /tmp/new/parent/file") == b"755\n755\n600\n"


# --------------------------------------------------------------------------------------------------------- machines


async def test_a_machine_without_bash_is_refused(sandbox):
    await says(sandbox, "mkdir /tmp/bin; for p in sh cat ls; do ln -s $(command -v $p) /tmp/bin; done")
    wire = LocalWire(sandbox, shell="env PATH=/tmp/bin /bin/sh")
    with pytest.raises(SandboxRefused, match="bash"):
        await wired(sandbox, wire).exec("true", timeout_sec=60)


async def test_a_machine_with_one_user_refuses_others(sandbox):
    with pytest.raises(SandboxRefused):
        await wired(sandbox, users=False).exec("true", user="nobody", timeout_sec=60)


async def test_a_tmp_that_is_not_there_is_no_matter(sandbox):
    machine = wired(sandbox)
    await says(sandbox, "mkdir -p /var/tmp; rmdir /tmp || rm -rf /tmp || mount --bind / /tmp")
    assert await says(machine, "echo x") == b"x\n"
    await machine.write_file("/opt/file", ALL_BYTES * 2000)
    assert await machine.read_file("/opt/file") == ALL_BYTES * 2000
