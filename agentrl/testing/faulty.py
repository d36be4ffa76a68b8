"""How faults look over HTTP: a middleware for loopback provider servers.

It does what needs no knowledge of the provider; a server takes the other kinds (``cut``, ``silent``, ``vanish``, ``ghost``, ``failed``,
``stuck``) from :class:`~agentrl.testing.faults.Faults` by itself, and ``reset`` and ``hang`` too where its answers are streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from agentrl.testing.faults import Fault, Faults, Kind, Primitive

HTML = "<html><head><title>{0}</title></head><body><h1>{0} injected by a proxy</h1></body></html>"
_REFUSALS: tuple[Kind, ...] = ("throttled", "error", "html", "unauthorized", "quota", "duplicate", "dropped")
_LOSSES: tuple[Kind, ...] = ("reset", "hang")
_POLL_SEC = 0.02


class Words(Protocol):
    """How a provider says no. Both make a new answer in the provider's own JSON."""

    def error(self, status: int, message: str) -> web.Response:
        """A failure with ``status``."""
        ...

    def quota(self, message: str) -> web.Response:
        """The account has used up what it may have."""
        ...


def faulty(
    faults: Faults,
    words: Words,
    *,
    primitive: Callable[[web.Request], Primitive | None],
    streamed: Collection[Primitive] = (),
) -> Middleware:
    """The middleware. ``primitive``: what a request is, None for what has no faults; ``streamed``: whose handlers lose their answers
    themselves."""

    @web.middleware
    async def apply(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = primitive(request)
        if asked is None:
            return await handler(request)
        fault = faults.take(asked, "slow", *_REFUSALS, *(() if asked in streamed else _LOSSES))
        if fault is None:
            return await handler(request)
        if fault.kind in _REFUSALS:
            return _refuse(request, fault, words)
        if fault.kind == "slow":
            await asyncio.sleep(fault.delay_sec)
            return await handler(request)
        answer = await handler(request)
        if fault.kind == "hang":
            await hang(request)
        abort(request)
        return answer

    return apply


def _refuse(request: web.Request, fault: Fault, words: Words) -> web.StreamResponse:
    if fault.kind == "html":
        page = HTML.format(fault.status)
        return web.Response(status=fault.status, text=page, content_type="text/html")
    if fault.kind == "quota":
        return words.quota(fault.message)
    if fault.kind == "dropped":
        abort(request)
    status = {"throttled": 429, "unauthorized": 401, "duplicate": 409}.get(fault.kind, fault.status)
    answer = words.error(status, fault.message)
    if fault.retry_after_sec is not None:
        answer.headers["Retry-After"] = f"{fault.retry_after_sec:g}"
    return answer


def abort(request: web.Request) -> None:
    """Cut the connection under a request, whatever was being sent."""
    if request.transport is not None:
        request.transport.abort()


async def hang(request: web.Request) -> None:
    """Wait until the client has given up."""
    # A transport has no event for its end.
    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(_POLL_SEC)
