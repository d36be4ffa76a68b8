"""What is particular to local sandboxes; what every backend must do is in tests/conformance."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from agentrl.api import (
    ImageUnavailable,
    Layer,
    Resources,
    SandboxError,
    SandboxGone,
    SandboxRefused,
    SandboxSpec,
    SettingsError,
)
from agentrl.lease import RUN_LABEL, collect_garbage
from agentrl_local.backend import LocalBackend
from agentrl_local.confine import CONFINED, explain, find_bwrap
from agentrl_local.records import read_record, start_time, stragglers
from agentrl_local.settings import LocalSettings

LABELS = {RUN_LABEL: "test"}


def traces(backend):
    """What is left on disk of sandboxes."""
    home = backend._state / "sandboxes"
    return sorted(home.iterdir()) if home.exists() else []


async def test_the_agent_cannot_end_or_read_the_first_process(sandbox):
    await sandbox.exec("kill -9 1; kill -STOP 1; kill -INT 1; kill -9 -1", timeout_sec=60)
    for command in (
        "readlink /proc/1/fd/1",
        "cat /proc/1/fd/0",
        "readlink /proc/1/exe",
        "cat /proc/1/environ",
        "cat /proc/1/mem",
    ):
        result = await sandbox.exec(command, timeout_sec=60)
        assert result.stdout == b""
        assert result.exit_code == 1, command


async def test_the_agent_gets_no_descriptor_of_ours(sandbox):
    result = await sandbox.exec(["ls", "/proc/self/fd"], timeout_sec=60)
    assert result.stdout.split() == [b"0", b"1", b"2", b"3"]  # 3: the folder that ls reads


async def test_the_agent_has_no_capabilities_and_makes_no_namespaces(sandbox):
    result = await sandbox.exec("grep Cap /proc/self/status | cut -f2 | sort -u; unshare -Ur true", timeout_sec=60)
    assert result.stdout == b"0000000000000000\n"
    assert result.exit_code != 0


async def test_nothing_of_the_host_changes_or_shows(local_backend, sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    probe = f"/etc/agentrl-probe-{os.getpid()}"
    result = await sandbox.exec(
        f"cat {secret} {Path.home()}/.bashrc /etc/shadow; echo x >> /etc/passwd; touch {probe} /usr/{probe[5:]}; cat {probe}",
        timeout_sec=60,
    )
    assert result.stdout == b""
    assert not Path(probe).exists()
    assert Path("/etc/passwd").read_text().splitlines()[-1] != "x"


async def test_the_environment_is_not_the_hosts(sandbox, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    result = await sandbox.exec("env; tr '\\0' '\\n' < /proc/1/environ", timeout_sec=60)
    assert b"SOME_API_KEY" not in result.stdout
    assert b"HOME=/root\n" in result.stdout


async def test_the_interpreter_of_the_host_runs_inside(sandbox):
    result = await sandbox.exec(["python3", "-c", "import sys; print(sys.prefix)"], timeout_sec=60)
    assert result.stdout.decode().strip() == sys.prefix


async def test_other_users_are_refused(sandbox):
    with pytest.raises(SandboxRefused, match="one user"):
        await sandbox.exec("true", user="alice", timeout_sec=60)


async def test_a_nul_in_a_path_or_command_is_an_error_and_no_crash(sandbox):
    with pytest.raises(SandboxError):
        await sandbox.read_file("/tmp/a\0b")
    assert (await sandbox.exec(["echo", "a\0b"], timeout_sec=60)).exit_code == 126
    assert (await sandbox.exec("echo ok", timeout_sec=60)).stdout == b"ok\n"


async def test_a_process_limit_stops_a_fork_bomb(local_backend):
    if "pids" not in local_backend.capabilities.resources:
        pytest.skip("no process limit here")
    bomb = await local_backend.create(SandboxSpec(resources=Resources(pids=64)), labels=LABELS, lifetime_sec=3600)
    await bomb.write_file("/tmp/said", b"")
    burning = asyncio.create_task(bomb.exec("b() { b | b & }; b 2>>/tmp/said; exec sleep 600", timeout_sec=600))
    while b"fork" not in await bomb.read_file("/tmp/said"):  # reading takes no process
        assert not burning.done()
    burning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await burning
    assert (await bomb.exec("echo alive", timeout_sec=60)).stdout == b"alive\n"
    await bomb.close()
    assert traces(local_backend) == []


async def test_a_memory_limit_kills_the_command_and_not_the_sandbox(local_backend):
    if "memory_mb" not in local_backend.capabilities.resources:
        pytest.skip("no memory limit here")
    spec = SandboxSpec(resources=Resources(memory_mb=128))
    small = await local_backend.create(spec, labels=LABELS, lifetime_sec=3600)
    result = await small.exec(["python3", "-c", "x = b'x' * (400 << 20)"], timeout_sec=60)
    assert result.exit_code == 137
    assert not result.timed_out
    assert (await small.exec("echo alive", timeout_sec=60)).stdout == b"alive\n"


async def test_odd_trees_are_removed(local_backend, sandbox):
    locked = "mkdir -p /tmp/a/b && touch /tmp/a/b/c && chmod 000 /tmp/a/b /tmp/a"
    deep = "import os\nfor _ in range(1100):\n    os.mkdir('deeper')\n    os.chdir('deeper')"
    assert (await sandbox.exec(locked, timeout_sec=60)).ok
    assert (await sandbox.exec(["python3", "-c", deep], timeout_sec=60)).ok
    await sandbox.close()
    assert traces(local_backend) == []


async def test_cancelled_creations_leave_nothing(local_backend):
    # Cancelled after a growing number of steps, so that every await of a creation is hit.
    finished = False
    steps = 0
    while not finished:
        task = asyncio.create_task(local_backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=3600))
        for _ in range(steps):
            await asyncio.sleep(0)
        steps += 1 + steps // 4
        finished = not task.cancel()
        try:
            await (await task).close()
        except asyncio.CancelledError:
            pass
        assert traces(local_backend) == []
        assert stragglers(local_backend._state) == []
    assert await local_backend.list({}) == []


async def test_a_dead_sandbox_cleans_up_after_itself(local_backend, sandbox):
    running = asyncio.create_task(sandbox.exec("sleep 600", timeout_sec=900))
    record = read_record(traces(local_backend)[0])
    os.kill(record.pid, signal.SIGKILL)
    with pytest.raises(SandboxGone):
        await running
    await sandbox.close()
    assert traces(local_backend) == []


ORPHAN = """
import asyncio, sys
from agentrl_local.backend import LocalBackend
from agentrl_local.settings import LocalSettings
from agentrl.api import SandboxSpec

async def main():
    backend = LocalBackend(LocalSettings(state_dir=sys.argv[1]))
    sandbox = await backend.create(SandboxSpec(), labels={"agentrl-run": "dead"}, lifetime_sec=600)
    print(sandbox.id, flush=True)
    await sandbox.exec("sleep 600", timeout_sec=600)

asyncio.run(main())
"""


async def test_killing_the_owner_ends_its_sandbox_and_garbage_collection_removes_the_rest(local_backend):
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHAN, str(local_backend._state), stdout=asyncio.subprocess.PIPE
    )
    sandbox_id = (await owner.stdout.readline()).decode().strip()
    record = read_record(local_backend._state / "sandboxes" / sandbox_id)
    pidfd = os.pidfd_open(record.pid)
    died = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, died.set)
    with pytest.raises(SandboxGone):
        await local_backend.attach(sandbox_id)
    owner.kill()
    await owner.wait()
    await asyncio.wait_for(died.wait(), 60)
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    found = await collect_garbage(local_backend, runs=["dead"])
    assert [info.id for info in found] == [sandbox_id]
    assert traces(local_backend) == []


async def test_a_sandbox_is_on_record_before_anything_is_done_for_it(local_backend, monkeypatch):
    async def killed_here(spec, state, layers):
        assert [info.id for info in await local_backend.list(LABELS)] == [state.name]
        raise SandboxError("killed")

    monkeypatch.setattr(local_backend, "_argv", killed_here)
    with pytest.raises(SandboxError, match="killed"):
        await local_backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=60)
    assert traces(local_backend) == []


async def test_another_process_can_delete_a_live_sandbox(local_backend):
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        ORPHAN,
        str(local_backend._state),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    sandbox_id = (await owner.stdout.readline()).decode().strip()
    record = read_record(local_backend._state / "sandboxes" / sandbox_id)
    await local_backend.delete(sandbox_id)
    _, said = await owner.communicate()
    assert b"SandboxGone" in said
    assert start_time(record.pid) != record.started
    assert traces(local_backend) == []


async def test_delete_touches_nothing_but_sandboxes(local_backend, tmp_path):
    (local_backend._state / "keep").mkdir()
    for name in ("../keep", "keep", "/", ""):
        await local_backend.delete(name)
    assert (local_backend._state / "keep").exists()


async def test_container_images_are_refused_unless_told_to_ignore_them(local_backend, tmp_path):
    spec = SandboxSpec(image="python:3.11")
    with pytest.raises(ImageUnavailable, match="SWE_LOCAL_IGNORE_IMAGE"):
        await local_backend.create(spec, labels=LABELS, lifetime_sec=3600)
    with pytest.raises(ImageUnavailable, match="prepare"):
        await local_backend.create(SandboxSpec(image="local:123"), labels=LABELS, lifetime_sec=3600)
    tolerant = LocalBackend(LocalSettings(state_dir=str(tmp_path / "tolerant"), ignore_image=True))
    await (await tolerant.create(spec, labels=LABELS, lifetime_sec=3600)).close()


async def test_a_failing_layer_says_why_and_leaves_nothing(local_backend):
    with pytest.raises(SandboxError, match="no luck"):
        await local_backend.prepare(None, Resources(), [Layer("bad", ("echo no luck >&2; exit 3",))])
    assert traces(local_backend) == []


async def test_a_taken_port_inside_is_named(local_backend):
    with pytest.raises(SandboxRefused, match="cannot listen on 80 inside"):
        await local_backend.create(SandboxSpec(reach=(80,)), labels=LABELS, lifetime_sec=3600)
    assert traces(local_backend) == []


async def test_the_state_folder_must_be_ours_and_out_of_sight(tmp_path):
    with pytest.raises(SettingsError, match="SWE_LOCAL_FOLDERS"):
        LocalBackend(LocalSettings(state_dir=str(tmp_path / "x"), folders=f"/usr {tmp_path}"))
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="not a folder of ours"):
        LocalBackend(LocalSettings(state_dir=str(tmp_path / "file")))


async def test_missing_user_namespaces_are_explained_with_a_remedy(sandbox):
    bwrap = str(find_bwrap())
    if not (await sandbox.exec(["test", "-x", bwrap], timeout_sec=60)).ok:
        pytest.skip("bubblewrap itself is not visible inside")
    # Inside of a sandbox there are no further user namespaces: the very situation.
    refusal = await sandbox.exec([bwrap, *CONFINED, "--ro-bind", "/", "/", "true"], timeout_sec=60)
    assert refusal.exit_code != 0
    error = explain(refusal.stderr.decode())
    assert isinstance(error, SandboxRefused)
    assert "seccomp=unconfined" in str(error)


@pytest.mark.parametrize("said", ["bwrap: Can't make overlay mount on /newroot/: Invalid argument"])
def test_a_state_folder_that_cannot_hold_overlays_is_explained(said):
    assert "SWE_LOCAL_STATE_DIR" in str(explain(said))


async def test_unconfined_runs_and_kills_plain_processes(tmp_path, caplog):
    backend = LocalBackend(LocalSettings(state_dir=str(tmp_path / "plain"), unconfined=True))
    assert "NOT isolated" in caplog.text
    assert not backend.capabilities.network_policy
    plain = await backend.create(SandboxSpec(), labels=LABELS, lifetime_sec=3600)
    result = await plain.exec("echo $HOME; setsid sleep 600 >/dev/null 2>&1 & echo $!", timeout_sec=60)
    pid = int(result.stdout.split()[1])
    assert start_time(pid) is not None
    with pytest.raises(SandboxRefused):
        await backend.prepare(None, Resources(), [Layer("x", ("true",))])
    await plain.close()
    assert start_time(pid) is None
    assert traces(backend) == []
