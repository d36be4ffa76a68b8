"""How a client gets its turn: as one body or as events, with pings while it waits, and errors in its dialect's own words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web

from agentrl.dialect import Dialect
from agentrl.errors import AgentrlError
from agentrl.gateway.session import Session
from agentrl.gateway.wire import dumps
from agentrl.types import Reply

_JSON = {"Content-Type": "application/json"}
_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
_log = logging.getLogger(__name__)


async def deliver(
    http: web.Request, dialect: Dialect, session: Session, turn: asyncio.Task[Reply], *, stream: bool, ping_sec: float
) -> web.StreamResponse:
    """Wait for ``turn`` and write it; a client that leaves cancels it. Raises what the turn raises while nothing was sent."""
    try:
        opened = await _keep_alive(http, dialect, turn, ping_sec) if stream else None
        if opened is not None and (error := await _failure(turn)) is not None:
            tell_bug(session, error)
            await _write(opened, dialect.error_event(error))
            return opened
        reply = await turn
    finally:
        if not turn.done():
            turn.cancel()
            await asyncio.wait([turn])
    # Big replies are rare and small ones cheap, so they are written out here and not in the pool.
    tail = b"".join(dialect.events(reply)) if stream else dumps(dialect.reply(reply))
    if opened is not None:
        response, sent = opened, await _write(opened, tail)
    else:
        # Nothing was sent yet, so head and body leave in one piece: each write costs a system call.
        response = web.Response(body=tail, headers=_STREAM if stream else _JSON)
        await response.prepare(http)
        sent = await _write(response, b"")
    if sent:
        # A client may hang up as soon as it has everything, while another turn holds the session.
        await asyncio.shield(session.delivered(reply.turn_id))
    return response


def json_response(status: int, payload: Mapping[str, object], headers: Mapping[str, str] | None = None) -> web.Response:
    """``payload`` as the whole answer."""
    return web.Response(status=status, body=dumps(payload), content_type="application/json", headers=headers)


def refusal(dialect: Dialect, error: Exception) -> web.Response:
    """``error`` as the whole answer."""
    status, payload, headers = dialect.error(error)
    return json_response(status, payload, headers)


def tell_bug(session: Session, error: Exception) -> None:
    """Log what is nobody's fault but ours."""
    if not isinstance(error, AgentrlError):
        _log.error("a turn of rollout %s failed", session.rollout_id, exc_info=error)


async def _keep_alive(
    http: web.Request, dialect: Dialect, turn: asyncio.Task[Reply], ping_sec: float
) -> web.StreamResponse | None:
    """Ping until ``turn`` has ended. None when it ended before the first ping was due: nothing was sent yet, so that an early
    failure still has its HTTP status."""
    opened: web.StreamResponse | None = None
    while not (await asyncio.wait([turn], timeout=ping_sec))[0]:
        if opened is None:
            opened = web.StreamResponse(headers=_STREAM)
            await opened.prepare(http)
        # A client that left is noticed by the server, which cancels this handler.
        with suppress(ConnectionError):
            await opened.write(dialect.ping())
    return opened


async def _failure(turn: asyncio.Task[Reply]) -> Exception | None:
    try:
        await turn
    except Exception as error:  # noqa: BLE001 - the boundary of the turn
        return error
    return None


async def _write(response: web.StreamResponse, tail: bytes) -> bool:
    """Write ``tail`` and the end; False when the client is gone."""
    try:
        if tail:
            await response.write(tail)
        await response.write_eof()
    except ConnectionError:
        return False
    return True
