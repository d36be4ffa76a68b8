"""An engine for tests: a real HTTP server that speaks SGLang's native protocol and samples what a script says.

It is not a model: ``script(input_ids, call_number)`` returns the ids to "sample", so a test decides every token and
everything around it (HTTP, parsing, aborts, versions) is real::

    async with ScriptedEngine(lambda ids, n: codec_ids("hello") + [stop]) as engine:
        gateway = Gateway(engine=SGLangEngine(engine.url), ...)
        ...
        assert engine.calls[0].input_ids == [...]

Faults on demand: :meth:`ScriptedEngine.fail_next`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import orjson
from aiohttp import web

Script = Callable[[list[int], int], Sequence[int]]
Fault = Literal[
    "stall", "http_500", "http_503", "reset", "no_logprobs", "none_logprob", "short_logprobs", "wrong_ids", "abort"
]


@dataclass(slots=True)
class EngineRequest:
    """One ``/generate`` that arrived. ``output_ids`` is what was answered; ``aborted`` whether an abort came for it."""

    number: int
    rid: str
    input_ids: list[int]
    sampling_params: dict[str, Any]
    headers: dict[str, str]
    output_ids: list[int] = field(default_factory=list)
    aborted: bool = False


class ScriptedEngine:
    """Async context manager; ``url`` is its root once entered.

    ``script(input_ids, call_number)``: the ids to answer, call numbers count from 0; it is cut at ``max_new_tokens``
    (``finish_reason`` ``length``) and behind the first id of ``stop_token_ids`` (``stop``, the id included). Text that
    ends by itself is a ``stop`` too.
    ``logprob(token_id)``: the log-probability that is returned for an id. ``context_tokens``: longer prompts are refused
    with SGLang's words. ``weight_versions``: whether replies have that field (0.5.20 and later), ``brackets``: whether weights
    must be updated between ``/begin_weight_update`` and ``/end_weight_update`` (0.5.23) or those routes do not exist.
    ``held``: while it is set to an unset :class:`asyncio.Event`, generations wait for it.

    To look at: ``calls`` (in order of arrival), ``aborts`` (the rids of abort requests), ``updates`` (bodies of weight updates),
    ``version``, ``paused``. To wait for: the semaphores ``arrived`` and ``aborted``, released once for each call and abort.
    """

    def __init__(
        self,
        script: Script,
        *,
        context_tokens: int = 1 << 20,
        version: str = "default",
        logprob: Callable[[int], float] = lambda token_id: -1.0 / (1 + token_id % 97),
        weight_versions: bool = True,
        brackets: bool = True,
        port: int = 0,
    ) -> None:
        self.calls: list[EngineRequest] = []
        self.aborts: list[str] = []
        self.updates: list[dict[str, Any]] = []
        self.arrived = asyncio.Semaphore(0)
        self.aborted = asyncio.Semaphore(0)
        self.held: asyncio.Event | None = None
        self.version = version
        self.paused = False
        self.url = ""
        self._script, self._logprob = script, logprob
        self._context_tokens, self._weight_versions = context_tokens, weight_versions
        self._brackets, self._port, self._updating = brackets, port, False
        self._faults: deque[Fault] = deque()
        self._running = asyncio.Event()
        self._running.set()
        self._live: dict[str, tuple[EngineRequest, asyncio.Event]] = {}
        self._runner: web.AppRunner | None = None

    def fail_next(self, *faults: Fault) -> None:
        """The next generations fail, one for each fault.

        ``stall`` answers nothing until aborted, ``http_500`` and ``http_503`` refuse, ``reset`` cuts the connection after reading,
        ``no_logprobs``, ``none_logprob``, ``short_logprobs`` and ``wrong_ids`` break the protocol, ``abort`` answers half of
        the script with ``finish_reason`` ``abort``.
        """
        self._faults.extend(faults)

    async def __aenter__(self) -> ScriptedEngine:
        app = web.Application(client_max_size=1 << 30)
        app.add_routes(
            [
                web.post("/generate", self._generate),
                web.post("/abort_request", self._abort),
                web.get("/health", _ok),
                web.get("/health_generate", _ok),
                web.get("/model_info", self._info),
                web.get("/get_model_info", self._info),
                web.get("/server_info", self._info),
                web.post("/flush_cache", _ok),
                web.post("/pause_generation", self._pause),
                web.post("/continue_generation", self._continue),
                web.post("/init_weights_update_group", _success),
                web.post("/{edge:begin|end}_weight_update", self._bracket),
                web.post("/update_weights_from_distributed", self._receive),
                web.post("/update_weights_from_disk", self._update),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    # ------------------------------------------------------------------------------------------- generation

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        body = orjson.loads(await http.read())
        if not isinstance(body.get("input_ids"), list):
            return _error(400, "input_ids must be a list of token ids")
        rid, params = body.get("rid") or secrets.token_hex(8), body.get("sampling_params") or {}
        request = EngineRequest(len(self.calls), rid, body["input_ids"], params, dict(http.headers))
        self.calls.append(request)
        if len(request.input_ids) >= self._context_tokens:
            return _error(400, self._too_long(len(request.input_ids)))
        fault = self._faults.popleft() if self._faults else None
        started, stopped = self.version, asyncio.Event()
        self._live[request.rid] = (request, stopped)
        self.arrived.release()
        try:
            await self._wait(fault, stopped)
        finally:
            del self._live[request.rid]
        if fault in ("http_500", "http_503"):
            return _error(int(fault[-3:]), "scripted failure")
        if fault == "reset":
            assert http.transport is not None
            http.transport.abort()
        return web.json_response(
            body=orjson.dumps(self._answer(request, fault, started, bool(body.get("return_logprob"))))
        )

    async def _wait(self, fault: Fault | None, stopped: asyncio.Event) -> None:
        """Until generation may go on, or an abort comes."""
        gates = [self._running.wait()]
        if self.held is not None:
            gates.append(self.held.wait())
        if fault == "stall":
            gates.append(asyncio.Event().wait())
        opened: asyncio.Future[Any] = asyncio.ensure_future(asyncio.gather(*gates))
        stop: asyncio.Future[Any] = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait([opened, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in (opened, stop):
                waiting.cancel()
            await asyncio.gather(opened, stop, return_exceptions=True)

    def _answer(self, request: EngineRequest, fault: Fault | None, started: str, wanted: bool) -> dict[str, Any]:
        ids, finish = _cut(list(self._script(request.input_ids, request.number)), request.sampling_params)
        if fault == "abort" or request.aborted:
            ids, finish = ids[: len(ids) // 2], {"type": "abort", "message": "Aborted"}
        request.output_ids = ids
        meta: dict[str, Any] = {
            "id": request.rid,
            "finish_reason": finish,
            "prompt_tokens": len(request.input_ids),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "weight_version": self.version,
            "output_token_logprobs": _break(fault, [[self._logprob(i), i, None] for i in ids]),
        }
        if fault == "no_logprobs" or not wanted:
            del meta["output_token_logprobs"]
        if self._weight_versions:
            meta["weight_versions"] = self._spans(started, len(ids))
        return {"text": "", "output_ids": ids, "meta_info": meta}

    def _spans(self, started: str, length: int) -> list[dict[str, Any]]:
        if started == self.version:
            return [{"version": started, "start": 0, "end": length}]
        half = length // 2
        return [{"version": started, "start": 0, "end": half}, {"version": self.version, "start": half, "end": length}]

    def _too_long(self, tokens: int) -> str:
        return f"The input ({tokens} tokens) is longer than the model's context length ({self._context_tokens} tokens)."

    # ---------------------------------------------------------------------------------------------- control

    async def _abort(self, http: web.Request) -> web.Response:
        rid = (await http.json())["rid"]
        self.aborts.append(rid)
        if rid in self._live:
            request, stopped = self._live[rid]
            request.aborted = True
            stopped.set()
        self.aborted.release()
        return web.Response()

    async def _info(self, _http: web.Request) -> web.Response:
        return web.json_response({"model_path": "scripted", "weight_version": self.version, "is_generation": True})

    async def _pause(self, _http: web.Request) -> web.Response:
        self.paused = True
        self._running.clear()
        return web.json_response({"status": "ok"})

    async def _continue(self, _http: web.Request) -> web.Response:
        self.paused = False
        self._running.set()
        return web.json_response({"status": "ok"})

    async def _bracket(self, http: web.Request) -> web.Response:
        if not self._brackets:
            raise web.HTTPNotFound
        self._updating = http.match_info["edge"] == "begin"
        return await _success(http)

    async def _receive(self, http: web.Request) -> web.Response:
        if self._brackets and not self._updating:
            return _error(400, "update_weights_from_distributed outside of begin_weight_update")
        return await self._update(http)

    async def _update(self, http: web.Request) -> web.Response:
        body = await http.json()
        self.updates.append(body)
        self.version = body.get("weight_version") or self.version
        return await _success(http)


def _cut(ids: list[int], params: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """What a sampler would have stopped at, and its finish reason."""
    limit, stops = params.get("max_new_tokens", 128), set(params.get("stop_token_ids") or ())
    for at, token in enumerate(ids[:limit]):
        if token in stops:
            return ids[: at + 1], {"type": "stop", "matched": token}
    if len(ids) > limit:
        return ids[:limit], {"type": "length", "length": limit}
    return ids, {"type": "stop", "matched": None}


def _break(fault: Fault | None, entries: list[list[Any]]) -> list[list[Any]]:
    if fault == "none_logprob":
        entries[-1][0] = None
    elif fault == "short_logprobs":
        entries.pop()
    elif fault == "wrong_ids":
        entries[0][1] += 1
    return entries


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


async def _ok(_http: web.Request) -> web.Response:
    return web.Response()


async def _success(_http: web.Request) -> web.Response:
    return web.json_response({"success": True, "message": "Success."})
