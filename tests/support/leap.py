"""Time that has passed before anybody could wait for it: tests of limits need no short ones, which a slow machine would exceed."""

from __future__ import annotations

import asyncio


def leap(seconds: float) -> None:
    """From now on the clock of the running event loop is so far ahead: what was to time out by then does so at once."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds  # type: ignore[method-assign]
