"""The HTTP service that agents talk to: routes and tokens. What a turn does is in :mod:`agentrl.gateway.turn`,
how its client gets it in :mod:`agentrl.gateway.delivery`.

An agent reaches its session by path (``/s/<token>/v1/…``), or with the token as ``x-api-key`` or bearer. Nothing
is served without a token but ``/health``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from aiohttp import web

from agentrl.dialect import Dialect
from agentrl.engine import Engine
from agentrl.errors import AgentrlError, BadRequest, SessionClosed, Unauthorized
from agentrl.gateway.delivery import deliver, json_response, refusal, tell_bug
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.memory import Memory
from agentrl.gateway.parts import READ, TurnParts
from agentrl.gateway.session import Budgets, Session
from agentrl.gateway.turns import Recorded, Turns
from agentrl.gateway.upstream import Upstream
from agentrl.gateway.wire import loads_object
from agentrl.middleware import Middleware
from agentrl.tokens.codec import Codec
from agentrl.types import ChatRequest, Trajectory, Turn

MAX_BODY_BYTES = 256 << 20
PING_SEC = 10.0
IDLE_SEC = 4 * 3600.0
_REMEMBER_CLOSED = 20_000
_QUEUE = 4096
_ACCEPT_AT_ONCE = 16
# How clients name the chain of a session that a request belongs to.
_LANE_HEADERS = ("x-agentrl-lane", "x-claude-code-agent-id")
# How programs name the run of theirs that a request belongs to.
_RUN_HEADERS = ("x-claude-code-session-id",)
_log = logging.getLogger(__name__)


class Gateway:
    """The service. Must be used inside one running event loop. A run may have several, one a process, on a range of ports:
    the URL of a session leads to the one that has it.

    ``port``: of several, the first free one is taken. ``idle_sec``: sessions without a request for that long are orphans and
    get closed. ``dialects`` are all served; the first answers where no route says which. ``context_tokens``: prompt and reply of one
    turn. ``on_turn(rollout_id, turn)`` is called for each recorded turn before its reply is delivered, and must be quick.
    """

    def __init__(
        self,
        *,
        codec: Codec,
        engine: Engine,
        sampling: SamplingPolicy,
        dialects: Sequence[Dialect],
        middleware: Sequence[Middleware] = (),
        bind_host: str = "127.0.0.1",
        port: int | Sequence[int] = 0,
        context_tokens: int,
        turn_timeout_sec: float,
        on_turn: Callable[[str, Turn], None] | None = None,
        ping_sec: float = PING_SEC,
        idle_sec: float = IDLE_SEC,
    ) -> None:
        self._pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="agentrl-gateway")
        self._parts = TurnParts(
            codec, engine, sampling, tuple(middleware), context_tokens, turn_timeout_sec, self._pool, on_turn
        )
        self._serve(Recorded(self._parts), dialects, bind_host, port, ping_sec, idle_sec)

    @classmethod
    def relaying(
        cls,
        turns: Turns,
        *,
        dialects: Sequence[Dialect],
        bind_host: str = "127.0.0.1",
        port: int | Sequence[int] = 0,
        ping_sec: float = PING_SEC,
    ) -> Gateway:
        """A gateway whose turns are taken elsewhere (:mod:`agentrl.gateway.relay`): no codec, no engine, no tokens."""
        gateway = cls.__new__(cls)
        gateway._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrl-gateway")
        gateway._serve(turns, dialects, bind_host, port, ping_sec)
        return gateway

    def _serve(
        self,
        turns: Turns,
        dialects: Sequence[Dialect],
        bind_host: str,
        port: int | Sequence[int],
        ping_sec: float,
        idle_sec: float = IDLE_SEC,
    ) -> None:
        self._turns = turns
        self._dialects = tuple(dialects)
        self._routes = {route.path: (dialect, route.kind) for dialect in dialects for route in dialect.routes}
        self._bind_host, self._ping_sec, self._idle_sec = bind_host, ping_sec, idle_sec
        self._ports = [port] if isinstance(port, int) else [*port]
        self._sweeper: asyncio.Task[None] | None = None
        self._sessions: dict[str, Session] = {}
        self._memory = Memory(self._pool)
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._runner: web.AppRunner | None = None

    # -------------------------------------------------------------------------------------------- lifecycle

    async def start(self) -> None:
        """Listen. Raises: OSError when all ports are taken."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Without an access log: its lines would carry tokens.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        for port in self._ports:
            try:
                await self._listen(self._runner, port)
                break
            except OSError:
                if port == self._ports[-1]:
                    raise
        self._sweeper = asyncio.create_task(self._sweep())

    async def _listen(self, runner: web.AppRunner, port: int) -> None:
        family = socket.AF_INET6 if ":" in self._bind_host else socket.AF_INET
        listener = socket.create_server((self._bind_host, port), family=family)
        # The event loop accepts as many in one go as it is told to queue. A thousand would keep all others waiting, so it is told
        # less than the kernel.
        await web.SockSite(runner, listener, backlog=_ACCEPT_AT_ONCE).start()
        listener.listen(_QUEUE)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        if self._runner is None:
            raise AgentrlError("the gateway is not started")
        return int(self._runner.addresses[0][1])

    @property
    def url(self) -> str:
        """Its root as seen from this host."""
        return f"http://127.0.0.1:{self.port}"

    def open_session(
        self,
        rollout_id: str,
        budgets: Budgets | None = None,
        *,
        sampling: SamplingPolicy | None = None,
        upstream: Upstream | None = None,
    ) -> Session:
        """A new session with a token of its own; ``sampling`` and, where turns are relayed, ``upstream`` may be its own too."""
        session = Session(secrets.token_hex(8), rollout_id, budgets or Budgets(), sampling, upstream)
        self._sessions[session.token] = session
        self._memory.opened(len(self._sessions))
        return session

    async def close_session(self, session: Session) -> Trajectory:
        """End a session: its token dies, what is being sampled is aborted. Returns what was recorded; idempotent."""
        self._closed[session.token] = None
        while len(self._closed) > _REMEMBER_CLOSED:
            self._closed.popitem(last=False)
        closing = self._sessions.pop(session.token, None) is not None
        trajectory = await session.close()
        if closing:
            self._memory.closed(len(self._sessions))
        return trajectory

    async def close_idle(self, idle_sec: float) -> None:
        """Close the sessions that nobody has used for so long: whoever opened them is gone."""
        before = time.monotonic() - idle_sec
        for session in [s for s in self._sessions.values() if s.used_at < before and not s.flights]:
            _log.warning("rollout %s left its session behind: it is closed", session.rollout_id)
            await self.close_session(session)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle_sec / 8)
            await self.close_idle(self._idle_sec)

    async def aclose(self) -> None:
        """Close all sessions and stop listening; the engine is the caller's; idempotent."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.gather(*(self.close_session(s) for s in [*self._sessions.values()]))
        if self._runner is not None:
            await self._runner.cleanup()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---------------------------------------------------------------------------------------------- requests

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        if http.path == "/health":
            return json_response(200, {"status": "ok", "sessions": len(self._sessions)})
        token, path = _token_and_path(http)
        dialect, kind = self._routes.get(path, (None, ""))
        try:
            session = self._session(token)
        except AgentrlError as error:
            return refusal(dialect or self._dialects[0], error)
        if http.method in ("GET", "HEAD") and path == "/":
            return json_response(200, {"status": "ok"})
        if dialect is None:
            return _not(404, f"there is no {path} here")
        if http.method != "POST":
            return _not(405, f"{path} answers POST only")
        return await self._answer(http, dialect, kind, session)

    def _session(self, token: str) -> Session:
        if token in self._closed:
            raise SessionClosed("this session is closed: its rollout has ended and nothing more is recorded")
        if token not in self._sessions:
            raise Unauthorized("no session has this token: use the session's URL or its token as api key")
        session = self._sessions[token]
        session.used_at = time.monotonic()
        return session

    async def _answer(self, http: web.Request, dialect: Dialect, kind: str, session: Session) -> web.StreamResponse:
        """The boundary of a turn: whatever happens inside becomes an error in the dialect's own words."""
        lane = next((http.headers[h] for h in _LANE_HEADERS if h in http.headers), "")
        try:
            raw = await _body(http)
            request = await self._turns.offload(len(raw) // READ, _read, dialect, raw, _client(http))
            if kind == "count_tokens":
                tokens = await self._turns.count(session, request, lane=lane, size=len(raw))
                return json_response(200, dialect.count(tokens))
            turn = asyncio.create_task(
                self._turns.take(session, request, dialect=dialect.name, lane=lane, size=len(raw))
            )
            response = await deliver(http, dialect, session, turn, stream=request.stream, ping_sec=self._ping_sec)
            self._memory.turned()
            return response
        except Exception as error:  # noqa: BLE001 - the boundary of the turn
            tell_bug(session, error)
            return refusal(dialect, error)


def _token_and_path(http: web.Request) -> tuple[str, str]:
    """The session's token and the path below its root, without a trailing slash (``/`` for the root)."""
    path = http.path
    if path.startswith("/s/"):
        token, _, rest = path[3:].partition("/")
        return token, "/" + rest.strip("/")
    scheme, _, bearer = http.headers.get("Authorization", "").partition(" ")
    token = http.headers.get("x-api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    return token, "/" + path.strip("/")


async def _body(http: web.Request) -> bytes:
    """What aiohttp has read, as it is: its own ``read`` copies it twice."""
    chunks, size = [], 0
    while chunk := await http.content.readany():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise BadRequest(f"the request is larger than {MAX_BODY_BYTES >> 20} MiB")
    return b"".join(chunks)


def _client(http: web.Request) -> str:
    """The product name that starts the user agent, and the run that the program names."""
    product = http.headers.get("User-Agent", "").partition(" ")[0]
    return " ".join([product, *(http.headers[h] for h in _RUN_HEADERS if h in http.headers)])


def _read(dialect: Dialect, raw: bytes, client: str) -> ChatRequest:
    return replace(dialect.read(loads_object(raw)), client=client)


def _not(status: int, message: str) -> web.Response:
    """An answer for requests that belong to no dialect, in a shape that both families of clients read."""
    return json_response(
        status, {"type": "error", "error": {"type": "not_found_error", "message": message, "code": None}}
    )
