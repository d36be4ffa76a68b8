"""The local engine's routes: SGLang's native HTTP protocol over one :class:`~agentrl_engine_local.decoding.Decoding`.

They know nothing of chat: ids in, ids out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson
import torch
from aiohttp import web
from tokenizers import Tokenizer

from agentrl_engine_local.decoding import Decoding
from agentrl_engine_local.requests import Progress, Request
from agentrl_engine_local.weights import WeightError, WeightGroups, load_folder
from agentrl_engine_local.wire import Limits, Refused, Wanted, answer, read_generate

_BODY_BYTES = 1 << 28
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _Ticket:
    """A request under way and where its progress arrives."""

    wanted: Wanted
    request: Request
    news: asyncio.Queue[Progress]
    started: float


class Routes:
    """The routes. ``info``: what ``/server_info`` tells beside the weight version."""

    def __init__(self, decoding: Decoding, tokenizer: Tokenizer, limits: Limits, info: dict[str, Any]) -> None:
        self._decoding, self._tokenizer, self._limits, self._info = decoding, tokenizer, limits, info
        self._groups = WeightGroups()
        self._updating = False
        self._active: set[str] = set()

    def app(self) -> web.Application:
        """The application, all routes mounted."""
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=[_errors])
        for path in ("/health", "/health_generate"):
            app.router.add_get(path, self._health)
        for path in ("/server_info", "/get_server_info", "/model_info", "/get_model_info"):
            app.router.add_get(path, self._tell)
        app.router.add_route("*", "/flush_cache", self._flush_cache)
        posts: dict[str, Handler] = {
            "/generate": self._generate,
            "/abort_request": self._abort,
            "/pause_generation": self._pause,
            "/continue_generation": self._continue,
            "/update_weights_from_disk": self._update_from_disk,
            "/init_weights_update_group": self._init_group,
            "/destroy_weights_update_group": self._destroy_group,
            "/begin_weight_update": partial(self._bracket, opening=True),
            "/end_weight_update": partial(self._bracket, opening=False),
            "/update_weights_from_distributed": self._update_from_group,
        }
        for path, handler in posts.items():
            app.router.add_post(path, handler)
        return app

    # ---------------------------------------------------------------------------------------- telling

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _tell(self, _: web.Request) -> web.Response:
        return _json({**self._info, "weight_version": self._decoding.version})

    # ------------------------------------------------------------------------------------- generating

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        wanted, batch, stream = read_generate(await _body(http), self._limits)
        rids = {w.rid for w in wanted}
        if len(rids) < len(wanted) or self._active & rids:
            raise Refused(f"Duplicate request ID detected in {sorted(rids)}")
        self._active |= rids
        tickets = [self._submit(w, stream=stream) for w in wanted]
        try:
            if stream:
                return await self._stream(http, tickets[0])
            answers = [self._answer(ticket, await ticket.news.get()) for ticket in tickets]
            return _json(answers if batch else answers[0])
        finally:
            self._active -= rids
            # After a reply there is nothing left to drop; after a lost client nobody waits for the rest.
            self._decoding.call(partial(self._decoding.drop, [ticket.request for ticket in tickets]))

    async def _stream(self, http: web.Request, ticket: _Ticket) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        finished = False
        while not finished:
            progress = await ticket.news.get()
            finished = progress.finish is not None
            await response.write(b"data: " + orjson.dumps(self._answer(ticket, progress)) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _submit(self, wanted: Wanted, *, stream: bool) -> _Ticket:
        loop, news = asyncio.get_running_loop(), asyncio.Queue[Progress]()

        def deliver(progress: Progress) -> None:
            loop.call_soon_threadsafe(news.put_nowait, progress)

        ids = list(wanted.ids)
        request = Request(wanted.rid, len(ids), ids, wanted.sampling, deliver, stream=stream, batch=wanted.batch)
        self._decoding.submit(request)
        return _Ticket(wanted, request, news, time.monotonic())

    def _answer(self, ticket: _Ticket, progress: Progress) -> dict[str, Any]:
        return answer(ticket.wanted, progress, self._tokenizer.decode, time.monotonic() - ticket.started)

    async def _abort(self, http: web.Request) -> web.Response:
        body = await _body(http)
        rid = None if body.get("abort_all") else str(body.get("rid") or "")
        await _done(self._decoding.call(partial(self._decoding.abort, rid)))
        return web.Response()

    # ---------------------------------------------------------------------------------------- pausing

    async def _pause(self, http: web.Request) -> web.Response:
        mode = (await _body(http)).get("mode", "abort")
        if mode not in ("abort", "retract", "in_place"):
            raise Refused(f"mode must be abort, retract or in_place, not {mode!r}")
        await _done(self._decoding.call(partial(self._decoding.pause, mode)))
        return _json({"status": "ok", "message": "Generation paused successfully."})

    async def _continue(self, _: web.Request) -> web.Response:
        await _done(self._decoding.call(self._decoding.resume))
        return _json({"status": "ok", "message": "Generation continued successfully."})

    async def _flush_cache(self, _: web.Request) -> web.Response:
        if await _done(self._decoding.call(self._decoding.flush)):
            return web.Response(text="Cache flushed.\n")
        return web.Response(status=400, text="Cache flushed for new requests only: some are still running or queued.\n")

    # ----------------------------------------------------------------------------------------- weights

    async def _update_from_disk(self, http: web.Request) -> web.Response:
        body = await _body(http)
        folder = Path(str(body.get("model_path", "")))
        return await self._change_weights(body, partial(load_folder, model_dir=folder))

    async def _update_from_group(self, http: web.Request) -> web.Response:
        body = await _body(http)
        try:
            shapes = [tuple(shape) for shape in body["shapes"]]
            wanted = list(zip(body["names"], body["dtypes"], shapes, strict=True))
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"names, dtypes and shapes must be lists of one length: {error!r}") from error
        group = body.get("group_name", "weight_update_group")

        def receive(parameters: dict[str, torch.Tensor], *, tied_head: bool) -> None:
            if not self._updating:
                raise WeightError(
                    "update_weights_from_distributed must run between begin_weight_update() and end_weight_update()"
                )
            self._groups.receive(group, parameters, wanted, tied_head=tied_head)

        return await self._change_weights(body, receive)

    async def _change_weights(self, body: dict[str, Any], change: Callable[..., None]) -> web.Response:
        if body.get("abort_all_requests"):
            await _done(self._decoding.call(partial(self._decoding.abort, None)))
        model, version = self._decoding.model, body.get("weight_version")

        def apply() -> bool:
            change(model.parameters, tied_head=model.config.tied_head)
            if version is not None:
                self._decoding.version = str(version)
            return not body.get("flush_cache", True) or self._decoding.flush()

        flushed = await _done(self._decoding.call_when_quiet(apply))
        if not flushed:
            raise WeightError(
                "Weights were updated, but the cache was not flushed because requests are still running or queued. "
                "Retract or finish them, then call /flush_cache."
            )
        return _success("Succeeded to update the weights.")

    async def _init_group(self, http: web.Request) -> web.Response:
        body = await _body(http)
        try:
            join = partial(
                self._groups.join,
                str(body.get("group_name", "weight_update_group")),
                address=str(body["master_address"]),
                port=int(body["master_port"]),
                rank=int(body["rank_offset"]),
                world_size=int(body["world_size"]),
                backend=str(body.get("backend", "nccl")),
            )
        except (KeyError, ValueError) as error:
            raise Refused(f"init_weights_update_group: {error!r}") from error
        # Not in the decode thread: it waits for the other ranks, and generation can go on meanwhile.
        await asyncio.to_thread(join)
        return _success("Succeeded to initialize custom process group.")

    async def _destroy_group(self, http: web.Request) -> web.Response:
        name = str((await _body(http)).get("group_name", "weight_update_group"))
        await _done(self._decoding.call_when_quiet(partial(self._groups.leave, name)))
        return _success("Succeeded to destroy custom process group.")

    async def _bracket(self, _: web.Request, *, opening: bool) -> web.Response:
        def toggle() -> None:
            if self._updating is opening:
                raise WeightError(f"a weight update is {'already' if opening else 'not'} open")
            self._updating = opening

        await _done(self._decoding.call_when_quiet(toggle))
        return _success("Success")


async def _body(http: web.Request) -> dict[str, Any]:
    raw = await http.read()
    try:
        body = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object")
    return body


async def _done(future: Future[T]) -> T:
    return await asyncio.wrap_future(future)


def _json(content: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")


def _success(message: str) -> web.Response:
    return _json({"success": True, "message": message})


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as error:
        return _json({"error": {"message": str(error)}}, 400)
    except WeightError as error:
        return _json({"success": False, "message": str(error)}, 400)
