"""What signals do to a command that has machines.

The first SIGINT, SIGTERM or SIGHUP stops it in order: by cancellation, so that everything is taken down and every sandbox is
deleted, within a few minutes at most. The second one makes it hurry: each sandbox is still asked to go, once, and nothing is
waited for longer than seconds. From the third on a signal does what it does to any program; what is left then dies with
its lifetime, or by ``agentrl gc``.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130

T = TypeVar("T")


class Stopping:
    """``hurry`` is what to call at the second signal; whoever has machines sets it. ``tell`` is told what goes on."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.hurry: Callable[[], None] = lambda: None
        self._tell = tell
        self._signals = 0

    @property
    def asked(self) -> bool:
        """Whether there was a signal."""
        return self._signals > 0

    def signalled(self, running: asyncio.Future[Any]) -> None:
        """Another signal."""
        self._signals += 1
        if self._signals == 1:
            self._tell("stopping: sandboxes are being deleted (a second signal hurries)")
            running.cancel()
            return
        unhandle()
        self.hurry()
        self._tell("hurrying: what is left in a few seconds is for agentrl gc")


def run_stoppable(main: Callable[[Stopping], Coroutine[Any, Any, T]], tell: Callable[[str], None]) -> T:
    """Like ``asyncio.run(main(stopping))``. Raises: KeyboardInterrupt when a signal ended it."""
    stopping = Stopping(tell)

    async def supervised() -> T:
        running = asyncio.ensure_future(main(stopping))
        if threading.current_thread() is threading.main_thread():  # no other gets signals
            for number in SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, stopping.signalled, running)
        try:
            return await running
        finally:
            unhandle()

    try:
        return asyncio.run(supervised())
    except asyncio.CancelledError:
        if stopping.asked:
            raise KeyboardInterrupt from None
        raise


def unhandle() -> None:
    """Signals do again what they do to any program."""
    for number in SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
