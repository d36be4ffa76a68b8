"""Checks of files. One promise a function; see :mod:`agentrl.testing.sandbox_checks`."""

from __future__ import annotations

import asyncio
import secrets

from agentrl.errors import FileDenied, FileIsDirectory, FileMissing
from agentrl.sandbox import SandboxBackend
from agentrl.testing.check import checks
from agentrl.testing.rig import ALL_BYTES, machine, refuses, run, says

_ODD_NAMES = ("with space", "q'u\"o`te", "new\nline", "$(id)", "-dash", "ü☃", "*?[a]", "back\\slash", "tab\t", " ")


async def files_are_bytes(backend: SandboxBackend) -> None:
    """Any bytes, and none, through parents that did not exist, over what was there."""
    async with machine(backend) as sandbox:
        for name, data in (("all", ALL_BYTES + b"\r\n\r"), ("text", "ü☃\n".encode()), ("empty", b"")):
            path = f"/tmp/new dir/{name}/file"
            await sandbox.write_file(path, b"old and longer than nothing", mode=0o600)
            await sandbox.write_file(path, data)
            assert await sandbox.read_file(path) == data, f"{name} came back different"


async def big_files_are_whole(backend: SandboxBackend) -> None:
    """50 MB there and back."""
    data = secrets.token_bytes(1 << 20) * 50
    async with machine(backend) as sandbox:
        await sandbox.write_file("/tmp/big", data)
        await says(sandbox, "stat -c %s /tmp/big", f"{len(data)}\n")
        assert await sandbox.read_file("/tmp/big") == data, "it came back different"


async def files_overlap(backend: SandboxBackend) -> None:
    """Eight files of 4 MB written at once and read at once."""
    async with machine(backend) as sandbox:
        files = {f"/tmp/many/{i}": secrets.token_bytes(1 << 12) * 1000 for i in range(8)}
        await asyncio.gather(*(sandbox.write_file(path, data) for path, data in files.items()))
        found = await asyncio.gather(*map(sandbox.read_file, files))
        assert found == list(files.values()), "they came back different"


async def modes_hold(backend: SandboxBackend) -> None:
    """A file has the mode that was asked for, whatever its mode was before."""
    async with machine(backend) as sandbox:
        for mode in (0o600, 0o755, 0o444, 0o644):
            await sandbox.write_file("/tmp/file", b"x", mode=mode)
            await says(sandbox, "stat -c %a /tmp/file", f"{mode:o}\n")


async def reads_are_honest(backend: SandboxBackend) -> None:
    """Missing, a folder, a FIFO, a device, too large: each its error, none an empty answer or an endless wait."""
    async with machine(backend) as sandbox:
        await run(
            sandbox, "mkfifo /tmp/fifo; head -c 1000 /dev/zero > /tmp/large; ln -s fifo /tmp/link; ln -s x /tmp/loose"
        )
        await refuses(FileMissing, sandbox.read_file("/tmp/missing"))
        await refuses(FileMissing, sandbox.read_file("/tmp/loose"))
        await refuses(FileIsDirectory, sandbox.read_file("/tmp"))
        for path in ("/tmp/fifo", "/tmp/link", "/dev/zero", "/dev/stdin"):
            await refuses(FileDenied, sandbox.read_file(path))
        await refuses(FileDenied, sandbox.read_file("/tmp/large", max_bytes=999))
        assert await sandbox.read_file("/tmp/large", max_bytes=1000) == bytes(1000), (
            "not whole, although it is not too large"
        )


async def writes_are_honest(backend: SandboxBackend) -> None:
    """Over a folder and below a file: refused. Over a FIFO or a link: replaced, what the link points at untouched."""
    async with machine(backend) as sandbox:
        await run(sandbox, "mkfifo /tmp/fifo; echo precious > /tmp/target; ln -s /tmp/target /tmp/link")
        await refuses(FileIsDirectory, sandbox.write_file("/tmp", b"x"))
        await refuses(FileDenied, sandbox.write_file("/tmp/target/below", b"x"))
        for path in ("/tmp/fifo", "/tmp/link"):
            await sandbox.write_file(path, b"new")
            assert await sandbox.read_file(path) == b"new", path
        assert await sandbox.read_file("/tmp/target") == b"precious\n", "the link was followed"


async def odd_names_hold(backend: SandboxBackend) -> None:
    """Names of files with spaces, quotes, newlines and the like."""
    async with machine(backend) as sandbox:
        paths = [f"/tmp/odd/{name}" for name in _ODD_NAMES]
        await asyncio.gather(*(sandbox.write_file(path, path.encode()) for path in paths))
        for path in paths:
            assert await sandbox.read_file(path) == path.encode(), path
            assert (await run(sandbox, ["cat", path])).stdout == path.encode(), f"{path!r} is called otherwise inside"


async def names_need_not_be_text(backend: SandboxBackend) -> None:
    """A name that is no UTF-8, its bytes written as surrogates (``os.fsdecode``)."""
    async with machine(backend) as sandbox:
        await sandbox.write_file("/tmp/caf\udce9", b"ours")
        result = await run(sandbox, "cat $'/tmp/caf\\xe9'; printf theirs > $'/tmp/na\\xefve'")
        assert result.stdout == b"ours", result
        assert await sandbox.read_file("/tmp/na\udcefve") == b"theirs", "another file"


async def growing_files_are_read(backend: SandboxBackend) -> None:
    """Reading a file that somebody writes to ends with what was there."""
    async with machine(backend) as sandbox:
        await run(
            sandbox,
            "timeout 20 bash -c 'while :; do echo line; done >> /tmp/grow' & until [ -s /tmp/grow ]; do :; done",
        )
        data = await sandbox.read_file("/tmp/grow")
        assert data and (b"line\n" * (len(data) // 5 + 1)).startswith(data), data[:100]


async def files_of_the_kernel_are_not_empty(backend: SandboxBackend) -> None:
    """A file that says it has no bytes, as those in /proc do, is read or refused: never an empty answer."""
    async with machine(backend) as sandbox:
        try:
            data = await sandbox.read_file("/proc/version")
        except FileDenied:
            return
        assert data == (await run(sandbox, "cat /proc/version")).stdout, data


CHECKS = checks(
    files_are_bytes,
    big_files_are_whole,
    files_overlap,
    modes_hold,
    reads_are_honest,
    writes_are_honest,
    odd_names_hold,
    names_need_not_be_text,
    growing_files_are_read,
    files_of_the_kernel_are_not_empty,
)
