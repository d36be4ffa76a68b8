"""Guests: machines that really run commands, apart from the host and from each other, and leave nothing."""

import asyncio
import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from provider import until

from agentrl.testing.guest import GuestGone, Host

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture
async def host(tmp_path):
    host = Host(tmp_path / "guests")
    yield host
    await host.aclose()
    assert not (tmp_path / "guests").exists()


@pytest.fixture
async def guest(host):
    return await host.start()


async def sh(guest, script, **options):
    process = await guest.spawn(["sh", "-c", script], env=ENV, **options)
    return await process.output()


async def test_streams_and_exit_codes(guest):
    process = await guest.spawn(["sh", "-c", "cat; echo err >&2; exit 7"], env={**ENV, "A": "b"}, stdin=True)
    process.stdin.write(bytes(range(256)) * 1000)
    process.stdin.close()
    assert await process.output() == (7, bytes(range(256)) * 1000, b"err\n")
    assert process.returncode == 7
    assert await sh(guest, "cat; kill -9 $$") == (-9, b"", b"")


async def test_what_cannot_be_started(guest):
    for argv, options, number in (
        (["no-such-program"], {}, errno.ENOENT),
        (["true"], {"cwd": "/nowhere"}, errno.ENOENT),
        (["true"], {"cwd": "/etc/passwd"}, errno.ENOTDIR),
        (["sh", "-c", "x" * 200_000], {}, errno.E2BIG),
    ):
        with pytest.raises(OSError) as caught:
            await guest.spawn(argv, env=ENV, **options)
        assert caught.value.errno == number, argv
    assert (await sh(guest, "echo ok"))[1] == b"ok\n"


async def test_signals_to_one_and_to_all(guest):
    process = await guest.spawn(["sh", "-c", "sleep 300 & echo $!; wait"], env=ENV)
    child = (await process.stdout.readline()).decode().strip()
    process.signal(signal.SIGTERM)
    assert await process.wait() == -signal.SIGTERM
    assert (await sh(guest, f"kill -0 {child}"))[0] == 0
    process.signal(signal.SIGKILL, group=True)  # too late: it is buried, its number may be another's
    assert (await sh(guest, f"kill -0 {child}"))[0] == 0
    process.close()
    other = await guest.spawn(["sh", "-c", "sleep 300 & echo $!; wait"], env=ENV)
    child = (await other.stdout.readline()).decode().strip()
    other.signal(signal.SIGKILL, group=True)
    assert await other.wait() == -signal.SIGKILL
    assert (await sh(guest, f"for i in $(seq 2000); do kill -0 {child} || exit 5; sleep 0.05; done"))[0] == 5
    other.close()


async def test_files(guest):
    data = bytes(range(256)) * 10_000
    await guest.write("/tmp/a b/ü", data, mode=0o755)
    assert await guest.read("/tmp/a b/ü") == data
    entry = await guest.stat("/tmp/a b/ü")
    assert (entry.size, entry.mode & 0o777) == (len(data), 0o755)
    await guest.make_folder("/tmp/d/e")
    with pytest.raises(FileExistsError):
        await guest.make_folder("/tmp/d/e")
    await guest.move("/tmp/a b/ü", "/tmp/d/e/f")
    await sh(guest, "ln -s f /tmp/d/e/link; ln -s none /tmp/d/e/dead")
    entries = {Path(entry.path).name: entry for entry in await guest.list("/tmp/d", depth=2)}
    assert set(entries) == {"e", "f", "link", "dead"}
    assert entries["link"].target == "f" and entries["link"].beyond == entries["f"].mode and entries["dead"].beyond == 0
    await guest.remove("/tmp/d")
    for call, error in (
        (guest.read("/tmp/d/e/f"), FileNotFoundError),
        (guest.read("/tmp"), IsADirectoryError),
        (guest.write("/tmp", b"x"), IsADirectoryError),
        (guest.write("/etc/passwd/x", b"x"), NotADirectoryError),
        (guest.list("/etc/passwd"), NotADirectoryError),
    ):
        with pytest.raises(error):
            await call


async def test_it_is_apart_from_the_host_and_others(host, guest, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    other = await host.start()
    await guest.write("/usr/mine", b"#!/bin/sh\necho mine\n", mode=0o755)
    assert await sh(guest, "/usr/mine") == (0, b"mine\n", b"")
    assert (await sh(other, "/usr/mine"))[0] == 127 and not Path("/usr/mine").exists()
    pids = (await sh(guest, "ls /proc"))[1].split()
    assert str(os.getpid()).encode() not in pids and len([pid for pid in pids if pid.isdigit()]) < 5
    assert (await sh(guest, f"cat {secret}"))[0] != 0
    links = (await sh(guest, "cat /proc/net/dev"))[1].decode()
    assert [line.split(":")[0].strip() for line in links.splitlines()[2:]] == ["lo"]
    assert (await sh(guest, "cat /etc/shadow"))[0] != 0


async def test_users(guest):
    if not guest.two_users:
        pytest.skip("not root: a guest has one user")
    assert (await sh(guest, "id -un; echo x > /home/user/f && stat -c %U /home/user/f", user="user"))[
        1
    ] == b"user\nuser\n"
    assert (await sh(guest, "cat /etc/shadow > /root/x", user="user"))[0] != 0
    await sh(guest, "echo new:x:1234:1234::/tmp:/bin/sh >> /etc/passwd")
    assert (await sh(guest, "id -u", user="new"))[1] == b"1234\n"
    with pytest.raises(PermissionError, match="no user"):
        await guest.spawn(["true"], env=ENV, user="stranger")
    await guest.write("/home/user/deep/file", b"x", owner=1000)
    assert [(await guest.stat(path)).uid for path in ("/home/user/deep", "/home/user/deep/file")] == [1000, 1000]


async def test_limits(host):
    guest = await host.start(cpus=1, memory_mb=256)
    assert (await sh(guest, "nproc"))[1] == b"1\n"
    hold = "head -c {0}000000 /dev/zero | tail -c {0}000000 | tail -c 1 | wc -c"
    assert (await sh(guest, hold.format(50)))[1].strip() == b"1"
    assert (await sh(guest, hold.format(600)))[1].strip() != b"1"


async def test_ports(guest):
    server = "import socket; s = socket.create_server(('127.0.0.1', 8123)); print('on', flush=True)\n"
    server += "while True:\n    peer = s.accept()[0]; peer.sendall(peer.recv(100)[::-1]); peer.close()"
    process = await guest.spawn(["python3", "-c", server], env=ENV)
    assert await process.stdout.readline() == b"on\n"
    for _ in range(3):
        reader, writer = await guest.open_port(8123)
        writer.write(b"abc")
        assert await reader.read() == b"cba"
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await guest.open_port(8124)
    process.signal(signal.SIGKILL)
    await process.wait()
    process.close()


async def test_snapshots_become_layers(host, guest, tmp_path):
    await sh(guest, "echo one > /opt/one; mkdir /opt/gone; rm /etc/hosts; mkdir /etc/hosts; echo x > /tmp/x")
    first = await guest.snapshot(tmp_path / "first")
    middle = await host.start(layers=first)
    await sh(middle, "echo two > /opt/two; rm -r /tmp/x /opt/gone")
    second = await middle.snapshot(tmp_path / "second")
    last = await host.start(layers=second)
    code, out, _ = await sh(last, "cat /opt/one /opt/two; ls /tmp; ls -d /opt/gone; ls -d /etc/hosts/")
    assert out == b"one\ntwo\n/etc/hosts/\n" and code == 0
    await sh(last, "echo changed > /opt/one")
    again = await host.start(layers=second)
    assert (await sh(again, "cat /opt/one"))[1] == b"one\n"


async def test_the_end_is_told_and_final(guest):
    process = await guest.spawn(["sh", "-c", "trap '' TERM; setsid sleep 300 & sleep 300"], env=ENV)
    state, pid = guest.state, guest.pid
    await asyncio.gather(guest.destroy(), guest.destroy())
    assert not state.exists()
    with pytest.raises(GuestGone):
        await process.wait()
    for call in (guest.spawn(["true"]), guest.read("/etc/passwd"), guest.open_port(1)):
        with pytest.raises(GuestGone):
            await call
    with pytest.raises(GuestGone):
        process.signal(signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    process.close()


async def test_the_first_process_cannot_be_killed_from_inside(guest):
    await sh(guest, "kill -9 1; kill -TERM 1; kill -INT 1")
    assert (await sh(guest, "echo still"))[1] == b"still\n"


async def test_a_guest_ends_with_its_host():
    script = """
import asyncio, os, sys, tempfile
from pathlib import Path
from agentrl.testing.guest import Host
async def main():
    guest = await Host(Path(sys.argv[1])).start()
    print(guest.pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([sys.executable, "-c", script, f"{folder}/g"], capture_output=True, text=True, check=False)
        pid = int(run.stdout)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=True)
