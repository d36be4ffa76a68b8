"""Files of npm packages, kept on this machine: fetched once per version, by one process at a time.

For programs that are published on npm and run without Node. Nothing is installed and no script of a package is run.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agentrl.errors import HarnessError

_FETCH_SEC = 900.0


def npm_missing() -> str | None:
    """One sentence when npm is not here; None when it is."""
    return None if shutil.which("npm") else "npm is not on the path, which fetches the program: apt-get install npm"


def fetch_npm(package: str, members: Mapping[str, str], folder: Path) -> Path:
    """``folder`` with files of ``package`` (``name@version``) in it: path in the folder → path in the package's archive.

    A folder that exists is returned as it is, so its name must tell versions apart; one that appears is complete. Blocking.
    Raises: HarnessError.
    """
    if folder.is_dir():
        return folder
    if missing := npm_missing():
        raise HarnessError(missing)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                _unpack(_packed(package, scratch), members, Path(scratch, "files")).rename(folder)
    return folder


def _packed(package: str, scratch: str) -> Path:
    """The archive; npm checks it against the registry's checksum."""
    command = ["npm", "pack", package, "--silent", "--pack-destination", scratch]
    try:
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=_FETCH_SEC, check=False)
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"npm did not fetch {package} within {_FETCH_SEC:g} s") from error
    archive = next(Path(scratch).glob("*.tgz"), None)
    if done.returncode or archive is None:
        raise HarnessError(f"npm could not fetch {package}: {(done.stderr or done.stdout).strip()[-1000:]}")
    return archive


def _unpack(archive: Path, members: Mapping[str, str], folder: Path) -> Path:
    wanted = {f"package/{inside}": name for name, inside in members.items()}
    with tarfile.open(archive) as files:
        for member in files:
            if member.isfile() and (name := wanted.pop(member.name, None)) is not None:
                _write(files, member, folder / name)
    if wanted:
        raise HarnessError(
            f"{archive.name} does not hold {', '.join(sorted(wanted))}: is this version packed differently?"
        )
    return folder


def _write(files: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = files.extractfile(member)
    assert source is not None  # it is a regular file
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    target.chmod(0o755)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
