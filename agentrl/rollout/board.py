"""Metrics for TensorBoard, written without torch or TensorFlow; nothing when the package is not installed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.rollout.metrics import scalars


class Board:
    """A TensorBoard event file in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._writer: Any = None
        if find_spec("tensorboard"):
            from tensorboard.summary.writer.event_file_writer import EventFileWriter

            self._writer = EventFileWriter(str(directory))

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Add all numbers of an iteration at its step."""
        if self._writer is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(metrics).items()]
        step = metrics["iteration"]
        self._writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
