"""What a reply says, whatever its format."""

from __future__ import annotations

import math
from dataclasses import dataclass

DEFAULT_DURATION_SEC = 1.0
MAX_DURATION_SEC = 60.0


@dataclass(frozen=True, slots=True)
class Keystrokes:
    """Keys to send, verbatim, and how long to wait afterwards, within [0, 60] seconds."""

    keys: str
    duration_sec: float

    @classmethod
    def clamped(cls, keys: str, duration: float) -> Keystrokes:
        """With a duration that is finite and in bounds."""
        return cls(keys, min(max(duration, 0.0), MAX_DURATION_SEC) if math.isfinite(duration) else DEFAULT_DURATION_SEC)


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed reply. ``error``: nothing of it may be executed. ``warnings``: what to do better, executed all the same."""

    commands: tuple[Keystrokes, ...] = ()
    complete: bool = False
    error: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def feedback(self) -> str:
        """Error and warnings in the words that the model reads; empty when there is nothing to say."""
        listed = "\n".join(f"- {warning}" for warning in self.warnings)
        lines = [f"ERROR: {self.error}"] if self.error else []
        return "\n".join(lines + ([f"WARNINGS: {listed}"] if listed else []))


def glued(number: int) -> str:
    """The warning for keys without a final newline before another command."""
    return (
        f"Command {number} should end with newline when followed by another command. "
        "Otherwise the two commands will be concatenated together on the same line."
    )


def corrected(what: str) -> str:
    """The warning for a reply that was mended before it was read."""
    return f"AUTO-CORRECTED: {what} - please fix this in future responses"


def wrong_order(noun: str, expected: tuple[str, ...], positions: dict[str, int]) -> list[str]:
    """The warning for parts that are there but not in the ``expected`` order."""
    wanted = [name for name in expected if name in positions]
    found = sorted(wanted, key=positions.__getitem__)
    if found == wanted:
        return []
    return [f"{noun} appear in wrong order. Found: {' → '.join(found)}, expected: {' → '.join(wanted)}"]
