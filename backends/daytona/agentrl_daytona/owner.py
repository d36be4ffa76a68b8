"""An event loop on a thread of its own, for an SDK whose client works only in the loop that made it. Knows nothing of the SDK."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from agentrl.api import SandboxError

T = TypeVar("T")


class OwnerLoop:
    """Runs coroutines in one loop, whichever loop asks. Its thread starts with the first of them, and again after :meth:`stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()  # on the loop only

    @property
    def started(self) -> bool:
        """Whether there is a thread."""
        return self._running is not None

    async def run(
        self, work: Coroutine[Any, Any, T], *, undo: Callable[[T], Coroutine[Any, Any, object]] | None = None
    ) -> T:
        """Await ``work`` over there. If we are cancelled, so is it, and we leave when it has ended; what it made all the same
        goes to ``undo``. Raises: what ``work`` raises; SandboxError when the loop was stopped meanwhile."""
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(asyncio.get_running_loop().create_task(work))
            self._tasks.add(tasks[0])
            tasks[0].add_done_callback(self._tasks.discard)
            tasks[0].add_done_callback(lambda task: _settle(task, outcome))

        with self._lock:  # against a stop in between: what is given to a loop that has ended is never begun
            owner = self._started()
            if owner is not asyncio.get_running_loop():
                owner.call_soon_threadsafe(begin)
        if owner is asyncio.get_running_loop():
            return await work
        waiter = asyncio.wrap_future(outcome)
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            if not waiter.done():
                with suppress(RuntimeError):  # the loop was stopped meanwhile, and has ended the work
                    owner.call_soon_threadsafe(lambda: tasks[0].cancel())
                await _ended(waiter)
            if waiter.exception() is None and undo is not None:
                await asyncio.shield(self.run(undo(waiter.result())))
            raise

    async def drain(self) -> None:
        """On the loop: cancel what else runs there, and wait until it has ended, which may take requests of its own."""
        for task in (others := self._tasks - {asyncio.current_task()}):
            task.cancel()
        if others:
            await asyncio.wait(others)

    async def stop(self) -> None:
        """Cancel what still runs there, and end the thread."""
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                running[0].call_soon_threadsafe(running[0].stop)
        if running is not None:
            await asyncio.to_thread(running[1].join)

    def _started(self) -> asyncio.AbstractEventLoop:
        """Its loop; to be called under the lock."""
        if self._running is None:
            ready: Future[asyncio.AbstractEventLoop] = Future()
            thread = threading.Thread(target=_main, args=(ready,), name=self._name, daemon=True)
            thread.start()
            self._running = ready.result(), thread
        return self._running[0]


def _main(ready: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        ready.set_result(loop)
        loop.run_forever()


def _settle(task: asyncio.Task[T], outcome: Future[T]) -> None:
    if task.cancelled():
        outcome.set_exception(SandboxError("the backend was closed meanwhile"))
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


async def _ended(waiter: asyncio.Future[T]) -> None:
    """Wait for its end through any number of cancellations: the caller passes one on anyway."""
    while not waiter.done():
        try:
            await asyncio.wait({waiter})
        except asyncio.CancelledError:
            continue
