"""The record on disk of every machine that a run meant to make, made and closed: append-only, one JSON object a line.

Many processes may append to one file: a line is one ``write`` on a descriptor opened for appending. A line that a crash
cut short is skipped when reading. Whoever appends holds a shared lock on the file for as long as its process lives, so that
anybody can see whether a run is alive.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.errors import SandboxTransient

FILE = "ledger.jsonl"


class Born(NamedTuple):
    """For whom and when (Unix seconds) a machine was made, and of which run."""

    run_id: str
    rollout_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Entries:
    """What a ledger says. ``open``: id → origin of machines made and not closed; ``intended``: key → origin of creations
    of which nobody knows how they ended. Both oldest first. ``runs``: the ids under which all were labelled."""

    runs: frozenset[str]
    open: dict[str, Born]
    intended: dict[str, Born]


@dataclass(slots=True)
class Ledger:
    """Appends to ``path`` (made with its folders on the first line). ``backend``: whose machines its lines are about;
    lines about another backend's are not read, unless it is empty."""

    path: Path
    run_id: str = ""
    backend: str = ""
    _file: int = field(default=-1, init=False, repr=False)

    def intended(self, key: str, *, rollout_id: str) -> None:
        """A machine is about to be asked for, under a label that is ``key``. Raises: SandboxTransient while it is being cleaned up."""
        self._append({"event": "intended", "key": key, "rollout": rollout_id})

    def created(self, sandbox_id: str, *, rollout_id: str, key: str = "") -> None:
        """A machine exists from now on."""
        self._append({"event": "created", "id": sandbox_id, "key": key, "rollout": rollout_id})

    def taken(self, sandbox_id: str, *, rollout_id: str) -> None:
        """A machine that was started ahead is from now on this rollout's."""
        self._append({"event": "taken", "id": sandbox_id, "rollout": rollout_id})

    def gone(self, sandbox_id: str) -> None:
        """The provider says that it does not exist any more, though nobody closed it."""
        self._append({"event": "gone", "id": sandbox_id})

    def closed(self, sandbox_id: str) -> None:
        """Its deletion succeeded."""
        self._append({"event": "closed", "id": sandbox_id})

    def failed(self, key: str) -> None:
        """Of this intention there is no machine."""
        self._append({"event": "failed", "key": key})

    def open_ids(self) -> tuple[str, ...]:
        """Machines created and never closed, oldest first."""
        return tuple(self.read().open)

    def read(self) -> Entries:
        """All that matters."""
        runs, alive, intended = set[str](), dict[str, Born](), dict[str, Born]()
        for entry in self._lines():
            runs.add(entry.get("run", ""))
            born = Born(entry.get("run", ""), entry.get("rollout", ""), entry.get("at", 0.0))
            match entry["event"]:
                case "intended":
                    intended[entry["key"]] = born
                case "created":
                    intended.pop(entry.get("key", ""), None)
                    alive[entry["id"]] = born
                case "closed":
                    alive.pop(entry["id"], None)
                case "failed":
                    intended.pop(entry["key"], None)
        return Entries(frozenset(runs - {""}), alive, intended)

    def strangers(self) -> dict[str, int]:
        """Backend → how many machines of it are open in this file, without our own."""
        names = {entry.get("backend", "") for entry in Ledger(self.path)._lines()} - {self.backend, ""}
        counts = {name: len(Ledger(self.path, backend=name).open_ids()) for name in sorted(names)}
        return {name: count for name, count in counts.items() if count}

    def close(self) -> None:
        """Give up the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextmanager
    def sole(self) -> Iterator[bool]:
        """Whether no process has it open; if so, none gets it during the block, in which it may be appended to."""
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            yield False
            return
        try:
            yield True
        finally:
            self.close()

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and "event" in entry and self._ours(entry.get("backend", "")):
                yield entry

    def _ours(self, backend: str) -> bool:
        return not self.backend or backend in ("", self.backend)

    def _append(self, entry: dict[str, str]) -> None:
        line = json.dumps({**entry, "run": self.run_id, "backend": self.backend, "at": time.time()})
        # The leading newline ends a line that another process did not live to finish.
        os.write(self._opened(), b"\n" + line.encode() + b"\n")

    def _opened(self) -> int:
        if self._file < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                raise SandboxTransient(f"`agentrl gc` is working on {self.path}") from None
            self._file = file
        return self._file
