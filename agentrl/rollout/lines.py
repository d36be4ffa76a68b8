"""Append-only files of JSON lines that survive a crash: what was written whole stays, a torn last line is dropped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

_CHUNK = 1 << 16


class Lines:
    """A file open for appending; opening it drops a line that a crash has cut."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        _drop_torn_line(self._file)

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one object as one line."""
        line = orjson.dumps(row) + b"\n"
        while line:  # one system call, unless the disk is nearly full
            line = line[os.write(self._file, line) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """All objects in order, without a torn last line; nothing when there is no file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield orjson.loads(line)


def _drop_torn_line(file: int) -> None:
    end = position = os.lseek(file, 0, os.SEEK_END)
    while position > 0:
        start = max(0, position - _CHUNK)
        newline = os.pread(file, position - start, start).rfind(b"\n")
        if newline >= 0:
            position = start + newline + 1
            break
        position = start
    if position < end:
        os.ftruncate(file, position)
