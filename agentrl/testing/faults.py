"""Faults on demand for loopback provider servers: what goes wrong next, for which primitive, and how often.

The vocabulary is the same for every provider, so that one table of tests fits them all::

    server.faults.add("throttled", "create", times=3, retry_after_sec=0.1)
    server.faults.add("reset", "exec")            # it ran, but the answer is lost
    server.faults.add("cut", "exec", after_bytes=1000)
    assert server.faults.spent                    # all of them have happened

Not here: what a fault looks like on the wire. That is :mod:`agentrl.testing.faulty` for HTTP, and the provider's own server for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

Primitive = Literal[
    "create", "get", "list", "delete", "keep_alive", "exec", "read", "write", "health", "prepare", "port"
]

Kind = Literal[
    "throttled",  # 429, with Retry-After if ``retry_after_sec`` is set; nothing was done
    "error",  # ``status`` with a JSON body of the provider's own shape; nothing was done
    "html",  # ``status`` with an HTML body, as a proxy in front of the provider would answer; nothing was done
    "unauthorized",  # 401: the key is not (any more) valid
    "quota",  # the provider's own words for: no more of this for your account
    "duplicate",  # the name is taken already
    "dropped",  # the connection is cut before anything was done
    "reset",  # everything was done, then the connection is cut instead of an answer
    "hang",  # everything was done, but the answer never comes
    "slow",  # the answer comes ``delay_sec`` late
    "cut",  # an answer in parts is cut after ``after_bytes`` of output
    "silent",  # a command runs, but its first event never comes
    "vanish",  # the machine dies ``delay_sec`` after the request came, which is cut
    "ghost",  # a list names machines that do not exist (any more)
    "failed",  # a build of an image ends in failure
    "stuck",  # a build of an image never ends
]

PRIMITIVES: tuple[Primitive, ...] = get_args(Primitive)
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. ``primitive`` None: whatever is asked next."""

    kind: Kind
    primitive: Primitive | None = None
    status: int = 503
    message: str = "injected fault"
    retry_after_sec: float | None = None
    delay_sec: float = 0.0
    after_bytes: int = 0


class Faults:
    """A queue of faults. Each is taken once by the first request that it is meant for."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []
        self.happened: list[Fault] = []

    def add(
        self,
        kind: Kind,
        primitive: Primitive | None = None,
        *,
        times: int = 1,
        status: int = 503,
        message: str = "injected fault",
        retry_after_sec: float | None = None,
        delay_sec: float = 0.0,
        after_bytes: int = 0,
    ) -> None:
        """Let it happen ``times`` times. Raises: ValueError for a word that is not in the vocabulary."""
        if kind not in KINDS or primitive not in (None, *PRIMITIVES):
            raise ValueError(f"no such fault: {kind!r} of {primitive!r}; kinds: {KINDS}; primitives: {PRIMITIVES}")
        fault = Fault(kind, primitive, status, message, retry_after_sec, delay_sec, after_bytes)
        self._waiting += [fault] * times

    def take(self, primitive: Primitive, *kinds: Kind) -> Fault | None:
        """The next fault meant for ``primitive``, of one of ``kinds`` if any are named; it has happened then."""
        for index, fault in enumerate(self._waiting):
            if fault.primitive in (None, primitive) and (not kinds or fault.kind in kinds):
                self.happened.append(self._waiting.pop(index))
                return fault
        return None

    def clear(self) -> None:
        """Forget what has not happened yet."""
        self._waiting.clear()

    @property
    def spent(self) -> bool:
        """Whether all that was added has happened."""
        return not self._waiting

    def __iter__(self) -> Iterator[Fault]:
        """What has not happened yet."""
        return iter(tuple(self._waiting))
