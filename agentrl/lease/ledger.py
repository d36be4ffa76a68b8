"""The record on disk of every machine that a run created and closed: append-only, one JSON object a line.

Many processes may append to one file: a line is one ``write`` on a descriptor opened for appending. A line that a crash
cut short is skipped when reading.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Ledger:
    """Appends to ``path`` (made with its folders on the first line)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def created(self, sandbox_id: str, *, rollout_id: str) -> None:
        """A machine exists from now on."""
        self._append({"event": "created", "id": sandbox_id, "rollout": rollout_id})

    def closed(self, sandbox_id: str) -> None:
        """Its deletion succeeded."""
        self._append({"event": "closed", "id": sandbox_id})

    def open_ids(self) -> tuple[str, ...]:
        """Machines created and never closed, oldest first."""
        alive: dict[str, None] = {}
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry["event"] == "created":
                alive[entry["id"]] = None
            else:
                alive.pop(entry["id"], None)
        return tuple(alive)

    def _append(self, entry: dict[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The leading newline ends a line that another process did not live to finish.
            os.write(fd, b"\n" + json.dumps({**entry, "at": time.time()}).encode() + b"\n")
        finally:
            os.close(fd)
