"""The program: a single native file from npm, fetched once on this machine and baked into images as a layer.

Node is not needed in the sandbox, and npm only here, to fetch and check the package.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from agentrl.api import HarnessError, Layer
from agentrl_claude_code.settings import ClaudeCodeSettings

PROGRAM = "/opt/agentrl/claude-code/claude"
"""Where it is in the sandbox."""
_PACKAGE = "@anthropic-ai/claude-code"
_FETCH_SEC = 900.0


def layer(settings: ClaudeCodeSettings) -> Layer:
    """Puts the program into an image, and starts it there once to see that it can."""
    name = f"claude-code-{settings.version}-{settings.platform}"
    check = f'said=$({PROGRAM} --version) && [ "${{said%% *}}" = {settings.version} ] || {{ echo "$said"; exit 1; }}'
    return Layer(name, commands=(check,), fetched={PROGRAM: partial(fetch, settings)})


def cached(settings: ClaudeCodeSettings) -> Path:
    """Where the program is kept on this machine, whether it is there or not."""
    return settings.cache_dir / "claude-code" / f"{settings.version}-{settings.platform}" / "claude"


def npm_missing() -> str | None:
    """One sentence when npm is needed and not there."""
    found = shutil.which("npm")
    return None if found else "npm is not on the path, which fetches Claude Code: apt-get install npm"


def fetch(settings: ClaudeCodeSettings) -> Path:
    """The program on this machine, fetched if need be; by one process at a time. Blocking. Raises: HarnessError."""
    target = cached(settings)
    if target.exists():
        return target
    if missing := npm_missing():
        raise HarnessError(missing)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_suffix(".lock")):
        if not target.exists():
            _download(f"{_PACKAGE}-{settings.platform}@{settings.version}", target)
    return target


def _download(package: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        # npm checks the package against the registry's checksum.
        command = ["npm", "pack", package, "--silent", "--pack-destination", scratch]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=_FETCH_SEC, check=False)
        packed = next(Path(scratch).glob("*.tgz"), None)
        if done.returncode or packed is None:
            raise HarnessError(f"npm could not fetch {package}: {(done.stderr or done.stdout).strip()[-1000:]}")
        _unpack(packed, target)


def _unpack(packed: Path, target: Path) -> None:
    unpacked = packed.with_name(target.name)
    with tarfile.open(packed) as archive:
        member = archive.extractfile(f"package/{target.name}")
        if member is None:
            raise HarnessError(f"{packed.name} holds no program")
        with member, unpacked.open("wb") as file:
            shutil.copyfileobj(member, file, 1 << 20)
    unpacked.chmod(0o755)
    unpacked.replace(target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
