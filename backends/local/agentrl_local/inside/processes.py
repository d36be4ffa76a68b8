"""Who belongs to which command: the process tree as the kernel tells it, and how to end a part of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MARKER = "AGENTRL_EXEC"
Table = dict[int, tuple[int, int]]


def stat_of(pid: int) -> tuple[int, int] | None:
    """(parent, start time in clock ticks) of a process that still runs, else None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if not fields or fields[0] in b"ZX" else (int(fields[1]), int(fields[19]))


def process_table() -> Table:
    """pid → (parent, start time) of all processes that still run."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    rows = ((pid, stat_of(pid)) for pid in pids)
    return {pid: row for pid, row in rows if row}


def marker_of(pid: int) -> str | None:
    """The command that a process came from, by its environment; None when it hides it."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = MARKER.encode() + b"="
    return next((v[len(prefix) :].decode("ascii", "replace") for v in variables if v.startswith(prefix)), None)


def members(root: int, marker: str, since: int, others: set[int]) -> set[int]:
    """Running processes of one command: below ``root``, or marked, or daemons that hide their mark and began after it.

    ``since``: start time of ``root``; ``others``: roots of the other commands in flight, whose trees are theirs.
    """
    table, me = process_table(), os.getpid()
    found = set()
    for pid in table:
        top = pid
        while top in table and table[top][0] not in (me, 0):
            top = table[top][0]
        if top not in table or table[top][0] != me:
            continue
        mark = marker if top == root else marker_of(pid)
        if mark == marker or (mark is None and top not in others and table[top][1] >= since):
            found.add(pid)
    return found


def descendants() -> set[int]:
    """Everything below this process."""
    table = process_table()
    found: set[int] = set()
    queue = [os.getpid()]
    while queue:
        parent = queue.pop()
        below = {pid for pid, row in table.items() if row[0] == parent} - found
        queue += below
        found |= below
    return found


def end(select: Callable[[], set[int]]) -> bool:
    """Freeze what ``select`` finds until it finds nothing new, then kill it all; whether there was anything.

    Frozen first: whoever is killed while its siblings run is replaced by them.
    """
    victims: set[int] = set()
    while more := select() - victims:
        for pid in more:
            _send(pid, signal.SIGSTOP)
        victims |= more
    for pid in victims:
        _send(pid, signal.SIGKILL)
    return bool(victims)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)
