"""Sandboxes that die, or meet another misfortune, at a chosen call."""

from __future__ import annotations

from contextlib import asynccontextmanager


async def die(sandbox):
    await sandbox.close()


class Mortal:
    """A sandbox that ``misfortune`` befalls before its ``last``-th call. ``calls`` counts them, but not how often one is repeated."""

    def __init__(self, sandbox, last=None, misfortune=die):
        self._sandbox, self._last, self._misfortune, self.calls = sandbox, last, misfortune, 0
        self._previous = None

    def __getattr__(self, name):
        return getattr(self._sandbox, name)

    async def _count(self, *call):
        # Looking whether something has ended takes one look or many.
        if call == self._previous:
            return
        self._previous = call
        self.calls += 1
        if self.calls == self._last:
            await self._misfortune(self._sandbox)

    async def exec(self, *args, **options):
        await self._count("exec", *args)
        return await self._sandbox.exec(*args, **options)

    async def write_file(self, *args, **options):
        await self._count("write", *args)
        return await self._sandbox.write_file(*args, **options)

    async def read_file(self, *args, **options):
        await self._count("read", *args)
        return await self._sandbox.read_file(*args, **options)


def mortal(open_sandbox, *, number, last=None, misfortune=die):
    """Like ``open_sandbox``, but ``misfortune`` befalls the ``number``-th machine at its ``last``-th call. ``made`` lists them."""

    @asynccontextmanager
    async def opened(*task):
        async with open_sandbox(*task) as sandbox:
            opened.made.append(Mortal(sandbox, last if len(opened.made) + 1 == number else None, misfortune))
            yield opened.made[-1]

    opened.made = []
    return opened


def points(total, count):
    """``count`` calls of ``total``, spread evenly from the first to the last."""
    return sorted({1 + round(i * (total - 1) / (count - 1)) for i in range(count)})
