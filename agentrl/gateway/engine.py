"""The client of an engine that speaks SGLang's native HTTP protocol.

It turns one ``/generate`` exchange into an exact :class:`~agentrl.types.Generation` or a typed error, aborts what nobody
waits for, and publishes weights. It starts no engine and knows no session.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from agentrl.engine import TensorSpec, WeightGroup
from agentrl.errors import EngineError, EngineUnavailable
from agentrl.gateway.protocol import check_success, generation_of, loads, refusal, sampling_json
from agentrl.tokens.ids import TokenIds
from agentrl.types import Generation, SamplingParams

CONNECT_ATTEMPTS = 8
CONNECT_TIMEOUT_SEC = 10.0
CONTROL_TIMEOUT_SEC = 30.0
IDLE_SEC = 2.0
"""A connection is used again when it was idle for less than this. SGLang closes idle ones after 5 s, and a request that meets
its closing cannot be told from one that arrived and broke."""
_BIG = 1 << 19


class SGLangEngine:
    """An :class:`~agentrl.engine.Engine` at ``url``; ``timeout_sec`` bounds one generation and one weight update.

    Must be used inside one running event loop; close it with :meth:`aclose`. ``sleep`` waits between attempts to connect.
    """

    def __init__(
        self, url: str, *, timeout_sec: float = 1800.0, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout_sec, self._sleep = timeout_sec, sleep
        self._http: aiohttp.ClientSession | None = None
        self._version: str | None = None
        self._aborts: set[asyncio.Task[None]] = set()

    async def generate(
        self, ids: Sequence[int], params: SamplingParams, request_id: str, *, routing_key: str = ""
    ) -> Generation:
        """See :meth:`agentrl.engine.Engine.generate`. Only refused connections are tried again: they never arrived."""
        version = self._version if self._version is not None else await self.weight_version()
        body = {
            "input_ids": orjson.Fragment(b"[%b]" % ids.json) if isinstance(ids, TokenIds) else list(ids),
            "sampling_params": sampling_json(params),
            "return_logprob": True,
            "rid": request_id,
            "stream": False,
        }
        headers = {"X-SMG-Routing-Key": routing_key} if routing_key else None
        try:
            answer = await self._post("/generate", body, self._timeout_sec, headers=headers, prompt_tokens=len(ids))
        except (asyncio.CancelledError, EngineUnavailable) as error:
            if not isinstance(error, EngineUnavailable) or error.arrived:
                self._abort_soon(request_id)
            raise
        generation = generation_of(answer, request_id, version)
        self._version = generation.weight_version
        return generation

    async def abort(self, request_id: str) -> None:
        """Stop a generation; behind a router, which does not forward aborts, on every worker."""
        status, _ = await self._send("POST", "/abort_request", {"rid": request_id}, CONTROL_TIMEOUT_SEC)
        if status == 404:
            for worker in await self._workers():
                await self._send("POST", f"{worker}/abort_request", {"rid": request_id}, CONTROL_TIMEOUT_SEC)

    async def health(self) -> None:
        """Returns when the engine can serve. Raises: EngineUnavailable."""
        status, _ = await self._send("GET", "/health", None, CONTROL_TIMEOUT_SEC, attempts=1)
        if status != 200:
            raise EngineUnavailable(f"the engine at {self.url} is not healthy: HTTP {status}")

    async def weight_version(self) -> str:
        """The version of the weights that the next generation uses."""
        for path in ("/model_info", "/get_model_info", "/server_info"):
            status, raw = await self._send("GET", path, None, CONTROL_TIMEOUT_SEC)
            if status == 200:
                self._version = str(loads(raw).get("weight_version", ""))
                return self._version
        raise EngineError(
            f"the engine at {self.url} tells no weight version: is it an SGLang server of 0.5.9 or later?"
        )

    async def pause(self) -> None:
        """Hold generation; what is running is retracted, and goes on under the weights of the time of :meth:`resume`."""
        await self._post("/pause_generation", {"mode": "retract"}, self._timeout_sec)

    async def resume(self) -> None:
        """Undo :meth:`pause`."""
        await self._post("/continue_generation", {}, self._timeout_sec)

    async def join_weight_group(self, group: WeightGroup) -> None:
        """Make the engine's ranks join; rank 0 must join at the same time."""
        body = {
            "master_address": group.address,
            "master_port": group.port,
            "rank_offset": 1,
            "world_size": group.world_size,
            "group_name": group.name,
            "backend": group.backend,
        }
        check_success(await self._post("/init_weights_update_group", body, self._timeout_sec), "join the weight group")

    async def update_weights(self, tensors: Sequence[TensorSpec], group: WeightGroup, version: str) -> None:
        """Receive ``tensors`` by broadcast from rank 0. Releases up to 0.5.20 have no begin and end: 404 is fine."""
        body = {
            "names": [t.name for t in tensors],
            "dtypes": [t.dtype for t in tensors],
            "shapes": [list(t.shape) for t in tensors],
            "group_name": group.name,
            "weight_version": version,
            "flush_cache": True,
        }
        bracketed = await self._bracket("/begin_weight_update")
        try:
            check_success(
                await self._post("/update_weights_from_distributed", body, self._timeout_sec), "take the weights"
            )
        finally:
            if bracketed:
                await self._bracket("/end_weight_update")
        self._version = version

    async def update_weights_from_disk(self, model_dir: Path, version: str) -> None:
        """Load ``model_dir``, as the engine's machine sees it, and serve it as ``version``."""
        body = {"model_path": str(model_dir), "weight_version": version, "flush_cache": True}
        check_success(await self._post("/update_weights_from_disk", body, self._timeout_sec), f"load {model_dir}")
        self._version = version

    async def aclose(self) -> None:
        """Let pending aborts go out and close all connections; idempotent."""
        await asyncio.gather(*self._aborts, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
            self._http = None

    # -------------------------------------------------------------------------------------------- the wire

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_sec: float,
        *,
        headers: Mapping[str, str] | None = None,
        attempts: int = CONNECT_ATTEMPTS,
    ) -> tuple[int, bytes]:
        """(HTTP status, body). A connection that never came about is tried again with full jitter."""
        for attempt in range(attempts):
            try:
                return await self._send_once(method, path, body, timeout_sec, headers)
            except EngineUnavailable as error:
                if error.arrived or attempt + 1 == attempts:
                    raise
                await self._sleep(random.uniform(0, min(0.05 * 2**attempt, 5.0)))
        raise AssertionError("unreachable")

    async def _send_once(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_sec: float,
        headers: Mapping[str, str] | None,
    ) -> tuple[int, bytes]:
        url = path if "://" in path else self.url + path
        raw = None if body is None else orjson.dumps(body)
        # aiohttp writes bytes in one go and files piece by piece from a thread, which only a big body is worth.
        data = io.BytesIO(raw) if raw is not None and len(raw) > _BIG else raw
        timeout = aiohttp.ClientTimeout(total=timeout_sec, sock_connect=CONNECT_TIMEOUT_SEC)
        sent = {"Content-Type": "application/json", **(headers or {})}
        try:
            async with self._session().request(method, url, data=data, headers=sent, timeout=timeout) as response:
                return response.status, await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise EngineUnavailable(f"cannot connect to the engine at {self.url}: {error}", arrived=False) from error
        except TimeoutError as error:
            raise EngineUnavailable(f"the engine did not answer {path} within {timeout_sec:g} s") from error
        except aiohttp.ClientError as error:
            raise EngineUnavailable(f"the connection to the engine broke during {path}: {error!r}") from error

    async def _post(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_sec: float,
        *,
        headers: Mapping[str, str] | None = None,
        prompt_tokens: int = 0,
    ) -> dict[str, Any]:
        status, raw = await self._send("POST", path, body, timeout_sec, headers=headers)
        if status != 200:
            raise refusal(path, status, raw, prompt_tokens)
        if not raw.lstrip().startswith(b"{"):
            return {}
        return await asyncio.to_thread(loads, raw) if len(raw) > _BIG else loads(raw)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SEC)
            self._http = aiohttp.ClientSession(connector=connector)
        return self._http

    async def _bracket(self, path: str) -> bool:
        status, raw = await self._send("POST", path, {}, self._timeout_sec)
        if status not in (200, 404):
            raise refusal(path, status, raw, 0)
        return status == 200

    async def _workers(self) -> list[str]:
        status, raw = await self._send("GET", "/workers", None, CONTROL_TIMEOUT_SEC)
        listed = loads(raw).get("workers", []) if status == 200 else []
        return [str(w["url"]).rstrip("/") for w in listed if isinstance(w, dict) and "url" in w]

    def _abort_soon(self, request_id: str) -> None:
        task = asyncio.create_task(self._abort_quietly(request_id))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _abort_quietly(self, request_id: str) -> None:
        # An engine that is gone generates nothing; the error that led here is the one that the caller sees.
        with suppress(EngineError):
            await self.abort(request_id)
