import os
import signal
import subprocess
import time

from agentrl_local.confine import CONFINED, find_bwrap
from agentrl_local.records import Record, destroy, read_record, start_time, stragglers, write_record


def test_a_record_is_read_back(tmp_path):
    record = Record("local-1", {"a": "b"}, 12.5, ("/x",), 7, 8)
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert read_record(tmp_path / "missing") is None


def test_destroying_nothing_is_success(tmp_path):
    destroy(tmp_path / "missing")


def test_a_reused_process_number_is_not_killed(tmp_path):
    folder = tmp_path / "sandbox"
    folder.mkdir()
    with subprocess.Popen(["sleep", "60"]) as innocent:
        write_record(folder, Record("local-1", {}, 0.0, pid=innocent.pid, started=start_time(innocent.pid) - 1))
        destroy(folder)
        assert innocent.poll() is None
        innocent.kill()
    assert not folder.exists()


def test_a_bubblewrap_killed_halfway_leaves_no_waiting_child(tmp_path):
    folder = tmp_path / "sandbox"
    folder.mkdir()
    never, held = os.pipe()
    # Blocked before it maps the users of its child, which waits for that.
    options = [option for option in CONFINED if option != "--disable-userns"]  # bubblewrap combines it with no block
    argv = [
        find_bwrap(),
        *options,
        "--userns-block-fd",
        str(never),
        "--info-fd",
        "2",
        "--ro-bind",
        "/",
        "/",
        "--chdir",
        f"{folder}/",
        "true",
    ]
    with subprocess.Popen(argv, pass_fds=[never], stderr=subprocess.DEVNULL) as bwrap:
        deadline = time.monotonic() + 60
        while len(found := stragglers(folder)) < 2:
            assert time.monotonic() < deadline, found
        bwrap.send_signal(signal.SIGKILL)
    os.close(never)
    os.close(held)
    (orphan,) = [pid for pid in found if pid != bwrap.pid]
    assert stragglers(folder) == [orphan]
    destroy(folder)
    assert stragglers(folder) == []
    assert not folder.exists()
