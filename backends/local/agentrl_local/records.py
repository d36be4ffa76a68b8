"""One small file for each sandbox, so that another process can find and delete what a dead one left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from agentrl_local.cgroups import remove_groups

NAME = "record.json"
KILL_SEC = 10.0


@dataclass(frozen=True, slots=True)
class Record:
    """``pid`` 0: not started yet. ``started`` is the kernel's start time of ``pid``: numbers come again, pairs do not."""

    id: str
    labels: Mapping[str, str]
    created_at: float
    groups: tuple[str, ...] = ()
    pid: int = 0
    started: int = 0


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which ``pid`` began, or None when it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def write_record(folder: Path, record: Record) -> None:
    """Write by rename: a reader sees the old one or the new one."""
    temporary = folder / (NAME + ".new")
    temporary.write_text(json.dumps(asdict(record)))
    temporary.rename(folder / NAME)


def make_recorded(folder: Path, record: Record) -> None:
    """Make the folder of a sandbox with its record in it: whoever is killed leaves none that nobody would find."""
    hidden = folder.with_name(f".{folder.name}")
    hidden.mkdir(parents=True)
    try:
        write_record(hidden, record)
        hidden.rename(folder)
    except OSError:
        remove_tree(hidden)
        raise


def read_record(folder: Path) -> Record | None:
    """The record of a sandbox's folder, or None when there is none (yet)."""
    try:
        data = json.loads((folder / NAME).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Record(**{**data, "groups": tuple(data["groups"])})


def stragglers(folder: Path) -> list[int]:
    """bubblewrap processes that serve the sandbox of ``folder``.

    bubblewrap itself, and a child that it forks and lets wait for its user mapping: whoever is killed in between
    leaves a child that waits for ever, and that nobody's death signal reaches.
    """
    mention = f"{folder}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                entry.name.isdigit()
                and (entry / "comm").read_text() == "bwrap\n"
                and mention in (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
    return found


def destroy(folder: Path) -> None:
    """Kill what a record names, with stragglers, and remove every trace; blocking. Nothing there is success."""
    deadline = time.monotonic() + KILL_SEC
    while folder.exists() and (found := stragglers(folder)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    remove(folder)


def remove(folder: Path) -> None:
    """Remove every trace of a sandbox whose processes have ended, or are about to; blocking."""
    record = read_record(folder)
    if record is not None:
        deadline = time.monotonic() + KILL_SEC
        while record.pid and start_time(record.pid) == record.started and time.monotonic() < deadline:
            with suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)
            time.sleep(0.01)
        remove_groups([Path(group) for group in record.groups])
    remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a sandbox's files, whatever permissions and depth its code gave them; its owner may be at it too. Raises: OSError."""
    if not folder.exists():
        return
    with suppress(FileNotFoundError):
        for work in folder.glob("folders/*/wk/work"):
            work.chmod(0o700)  # overlayfs leaves it without any permission
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        subprocess.run([*command, "--", str(folder)], capture_output=True, check=False)
        if not folder.exists():
            return
    raise OSError(f"cannot remove {folder}: remove it by hand")
