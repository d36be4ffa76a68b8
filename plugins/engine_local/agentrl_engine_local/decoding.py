"""The decode thread: continuous batching over one model.

It owns the model. Everything that touches the model or the queue is a job that runs in this thread between two steps;
with nothing to do the thread sleeps. Each step gives every running request one token and at most one waiting prompt its
next piece.
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

import torch

from agentrl_engine_local.model import Model, Span
from agentrl_engine_local.requests import Request, aborted
from agentrl_engine_local.sampling import choose
from agentrl_engine_local.slots import Slots
from agentrl_engine_local.weights import WeightError

PROMPT_PIECE = 512
_MANY_TOKENS = 32
PauseMode = Literal["abort", "retract", "in_place"]
T = TypeVar("T")


class Decoding:
    """``decode``: ids → text, for stop strings. ``seed``: of the random numbers for requests without their own.
    ``threads``: CPU threads for prompts; half of them decode.

    :meth:`submit`, :meth:`call`, :meth:`call_when_quiet` and :meth:`stop` may be called from any thread, everything
    else only inside a job.
    """

    def __init__(
        self, model: Model, *, slots: int, decode: Callable[[list[int]], str], seed: int, threads: int
    ) -> None:
        self.model = model
        self._threads = threads
        self.version = "default"
        self._decode = decode
        self._slots = Slots(slots, model.copy_prefix)
        self._seeds = random.Random(seed)
        self._waiting: deque[Request] = deque()
        self._filling: Request | None = None
        self._running: list[Request] = []
        self._paused = self._stopped = False
        self._wake = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._quiet_jobs: deque[Callable[[], None]] = deque()

    # -------------------------------------------------------------------------------- from any thread

    def submit(self, request: Request) -> None:
        """Queue a request; its ``deliver`` tells the rest."""
        self._post(lambda: self._enqueue(request))

    def call(self, job: Callable[[], T]) -> Future[T]:
        """Run ``job`` before the next step. A WeightError that it raises is the future's."""
        future: Future[T] = Future()
        self._post(lambda: _run(job, future))
        return future

    def call_when_quiet(self, job: Callable[[], T]) -> Future[T]:
        """Run ``job`` once no request is under way, or at once while paused; until then no new one is begun."""
        future: Future[T] = Future()
        self._post(lambda: self._quiet_jobs.append(lambda: _run(job, future)))
        return future

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._stopped = True
        self._post(lambda: None)

    def run(self) -> None:
        """The thread's body."""
        while not self._stopped:
            with self._wake:
                self._wake.wait_for(lambda: self._jobs or self._busy())
                jobs, self._jobs = self._jobs, deque()
            for job in jobs:
                job()
            while self._quiet_jobs and (self._paused or not self._under_way()):
                self._quiet_jobs.popleft()()
            if self._busy():
                self._step()

    # ------------------------------------------------------------------------------------ inside jobs

    def abort(self, rid: str | None, message: str = "Aborted") -> None:
        """End the request ``rid`` (or the batch of that name), or all for None, with what it has."""
        for request in [*self._waiting, *self._under_way()]:
            if rid is None or rid in (request.rid, request.batch):
                self._end(request, aborted(message))

    def drop(self, requests: Sequence[Request]) -> None:
        """End those of ``requests`` that still go on: nobody waits for them any more."""
        for request in requests:
            if request.finish is None:
                self._end(request, aborted("the client has gone"))

    def pause(self, mode: PauseMode) -> None:
        """Take no more steps. ``abort`` ends all requests, ``retract`` queues them to be computed again, ``in_place`` keeps them."""
        self._paused = True
        if mode == "abort":
            self.abort(None)
        elif mode == "retract":
            under_way = self._under_way()
            for request in under_way:
                self._release(request)
            self._waiting.extendleft(reversed(under_way))

    def resume(self) -> None:
        """Go on."""
        self._paused = False

    def flush(self) -> bool:
        """Forget computed prefixes → whether nothing computed before is in use any more."""
        self._slots.flush()
        return not self._under_way() and (self._paused or not self._waiting)

    # ---------------------------------------------------------------------------------------- a step

    def _post(self, job: Callable[[], None]) -> None:
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    def _enqueue(self, request: Request) -> None:
        seed = request.sampling.seed
        request.random = random.Random(self._seeds.getrandbits(64) if seed is None else seed)
        self._waiting.append(request)

    def _under_way(self) -> list[Request]:
        return self._running + ([self._filling] if self._filling else [])

    def _busy(self) -> bool:
        return not self._paused and bool(self._waiting or self._running or self._filling)

    def _admit(self) -> None:
        while self._waiting and self._filling is None and not self._quiet_jobs:
            request = self._waiting[0]
            request.slot = self._slots.take(request.ids)
            if request.slot is None:
                return
            self._waiting.popleft()
            if not request.logprobs:
                request.cached_tokens = len(request.slot.ids)
            if request.missing == 1:
                self._running.append(request)
            else:
                # One at a time: whoever shares its beginning then finds it computed.
                self._filling = request

    def _step(self) -> None:
        self._admit()
        batch, filling = list(self._running), self._filling
        spans = [_span(request, 1) for request in batch]
        if filling:
            spans.append(_span(filling, min(filling.missing - 1, PROMPT_PIECE)))
        logits = self._forward(spans)
        for request, span in zip([*batch, filling] if filling else batch, spans, strict=True):
            assert request.slot is not None
            request.slot.ids += span.ids
        if filling and filling.missing == 1:
            self._running.append(filling)
            self._filling = None
        if batch:
            ids, logprobs = choose(logits[: len(batch)], [request.choice() for request in batch])
            for request, token, logprob in zip(batch, ids, logprobs, strict=True):
                self._take(request, token, logprob)

    def _forward(self, spans: Sequence[Span]) -> torch.Tensor:
        # Few tokens are bound by reading the weights, which half the threads do as fast; and short parallel regions
        # collapse when the trainer or a sandbox wants a core too.
        many = sum(len(span.ids) for span in spans) >= _MANY_TOKENS
        torch.set_num_threads(self._threads if many else max(1, self._threads // 2))
        return self.model.forward(spans)

    def _take(self, request: Request, token: int, logprob: float) -> None:
        if not math.isfinite(logprob):
            self._end(request, aborted("the model's logits are not finite: its weights are broken"))
            return
        request.take(token, logprob, self.version)
        if reason := request.ended(self._decode):
            self._end(request, reason)
        elif request.stream:
            request.deliver(request.progress(self.version))

    def _end(self, request: Request, reason: Mapping[str, Any]) -> None:
        request.finish = reason
        if request in self._waiting:
            self._waiting.remove(request)
        self._release(request)
        request.deliver(request.progress(self.version))

    def _release(self, request: Request) -> None:
        if request is self._filling:
            self._filling = None
        elif request in self._running:
            self._running.remove(request)
        if request.slot is not None:
            self._slots.give_back(request.slot)
            request.slot = None


def _span(request: Request, count: int) -> Span:
    assert request.slot is not None
    start = len(request.slot.ids)
    return Span(request.slot.index, start, request.ids[start : start + count])


def _run(job: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(job())
    except WeightError as error:
        future.set_exception(error)
