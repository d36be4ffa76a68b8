"""Git on the raw bytes of a work tree inside a sandbox, deaf to the repository's own configuration.

The work is done by ``rawgit.sh``, one command for each verb; this module carries it over and turns its exit codes into
exceptions. It is for the tools beside it (:mod:`agentrl.tools.patch`, :mod:`agentrl.tools.git`), not for plugins.
"""

from __future__ import annotations

import secrets
from importlib.resources import files

from agentrl.errors import PatchError, PatchRejected
from agentrl.sandbox import Sandbox
from agentrl.types import ExecResult

TIMEOUT_SEC = 600.0
_REJECTED = 5
# Git goes on after these, with a file less than there is.
_LOSSES = (b"Ignoring path", b"could not open directory")


def fresh_path() -> str:
    """A path in the sandbox that nobody can guess."""
    return f"/tmp/agentrl-{secrets.token_hex(12)}"


def script(name: str) -> str:
    """The text of a shell script beside this module."""
    return files(__package__).joinpath(name).read_text()


async def raw_git(sandbox: Sandbox, verb: str, scratch: str, workdir: str, *args: str) -> bytes:
    """Run one verb of ``rawgit.sh``; its standard output. Raises: PatchError, PatchRejected, SandboxError."""
    argv = ["sh", "-c", script("rawgit.sh"), "sh", verb, scratch, workdir, *args]
    result = await sandbox.exec(argv, cwd="/", timeout_sec=TIMEOUT_SEC)
    check(result, f"git {verb} in {workdir}")
    return result.stdout


def check(result: ExecResult, what: str) -> None:
    """Raise PatchRejected or PatchError unless ``result`` is a clean success."""
    tail = result.stderr[-2000:].decode(errors="replace").strip()
    if result.timed_out:
        raise PatchError(f"{what} took longer than {TIMEOUT_SEC:.0f} s")
    if result.exit_code == _REJECTED:
        raise PatchRejected(tail)
    if not result.ok or any(loss in result.stderr for loss in _LOSSES):
        raise PatchError(f"{what} failed with exit code {result.exit_code}: {tail}")


def names(listing: bytes) -> tuple[str, ...]:
    """NUL-ended paths as text; bytes that are no UTF-8 are kept as surrogates (see :func:`os.fsdecode`)."""
    return tuple(path.decode(errors="surrogateescape") for path in listing.split(b"\0") if path)
