"""When a failed creation is tried again, by the class of its error.

- Told to slow down: as often as there is time for, because the cure is waiting. The whole account brakes, so that the load
  on the provider is a handful of questions a minute, whether 8 or 400 rollouts wait.
- Transient: ``SWE_BOOT_RETRIES`` times, with full jitter under a doubling cap; enough for a blip or a restart of the provider.
- Everything else: never. An unknown error may have made a machine (:mod:`agentrl.lease.starter` looks for it).
- A provider that is dead (nothing has started for minutes, only failures): nobody waits for it any more, one after the
  other tries. Otherwise hundreds of rollouts would each spend their whole time on finding out the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agentrl.errors import SandboxError, SandboxRefused, SandboxThrottled, SandboxTransient
from agentrl.lease.pace import Pace

BACKOFF_SEC = 4.0
BACKOFF_CAP_SEC = 60.0
OUTAGE_SEC = 120.0
OUTAGE_FAILURES = 16


def retry_delay(error: Exception, attempt: int, *, first_sec: float | None = None) -> float:
    """Seconds to wait: full jitter under a cap that doubles from ``first_sec`` (None: of creations), and never less than the
    provider asked for."""
    first = BACKOFF_SEC if first_sec is None else first_sec
    jitter = random.uniform(0.0, min(BACKOFF_CAP_SEC, first * 2 ** min(attempt, 30)))
    wish = error.retry_after_sec if isinstance(error, SandboxThrottled) else None
    return jitter if wish is None else wish + jitter


class Brake:
    """Slows the whole account down. Answers that arrive while the brake is on are of questions from before: they count once."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._level = 0
        self._until = 0.0

    def throttled(self, error: SandboxThrottled) -> None:
        """The provider said so."""
        now = time.monotonic()
        if now < self._until:
            self._pace.brake(error.retry_after_sec or 0.0)
            return
        delay = retry_delay(error, self._level)
        self._level, self._until = self._level + 1, now + delay
        self._pace.brake(delay)

    def released(self) -> None:
        """The provider has made a machine."""
        self._level = 0


class Outage:
    """Notices that a provider is dead: failures in a row, over minutes, without one success between them."""

    def __init__(self) -> None:
        self._failures = self._trying = 0
        self._first = self._last = 0.0
        self._said = ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Around one attempt. Raises: SandboxTransient instead of letting it happen, while the provider is dead and somebody tries."""
        if self._trying and self._declared():
            minutes = (time.monotonic() - self._first) / 60
            raise SandboxTransient(f"nothing has started for {minutes:.0f} min, not waiting for it: {self._said}")
        self._trying += 1
        try:
            yield
        except SandboxError as error:
            if not isinstance(error, SandboxThrottled | SandboxRefused):
                self._failed(error)
            raise
        else:
            self._failures = 0
        finally:
            self._trying -= 1

    def _failed(self, error: SandboxError) -> None:
        now = time.monotonic()
        if not self._failures or now - self._last > OUTAGE_SEC:
            self._failures, self._first = 0, now
        self._failures, self._last, self._said = self._failures + 1, now, str(error)

    def _declared(self) -> bool:
        recent = time.monotonic() - self._last < OUTAGE_SEC
        return self._failures >= OUTAGE_FAILURES and recent and self._last - self._first > OUTAGE_SEC
