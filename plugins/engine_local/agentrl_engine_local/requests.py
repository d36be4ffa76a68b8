"""One request on its way through the engine: what was asked, and how far it has come."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl_engine_local.sampling import Choice
from agentrl_engine_local.slots import Slot


@dataclass(frozen=True, slots=True)
class Sampling:
    """``stop_ids`` end the reply and are part of it; ``never_first`` may not be among the first ``min_new_tokens``.
    ``top_k`` 0: off. ``seed`` None: the engine's own stream."""

    max_new_tokens: int
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    never_first: frozenset[int] = frozenset()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot. ``versions``: (weight version, first output index sampled under it). ``finish`` is None until the end."""

    output: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[tuple[str, int], ...]
    cached_tokens: int
    weight_version: str
    finish: Mapping[str, Any] | None


@dataclass(slots=True, eq=False)
class Request:
    """``ids`` grow from the prompt. ``batch``: the name of the batch that it came in, if any.

    ``deliver`` is called in the decode thread: at every token when ``stream``, and at the end.
    """

    rid: str
    prompt_tokens: int
    ids: list[int]
    sampling: Sampling
    deliver: Callable[[Progress], None]
    stream: bool = False
    batch: str | None = None
    logprobs: list[float] = field(default_factory=list)
    versions: list[tuple[str, int]] = field(default_factory=list)
    cached_tokens: int = 0
    finish: Mapping[str, Any] | None = None
    slot: Slot | None = None
    random: random.Random = field(default_factory=random.Random)

    @property
    def output(self) -> list[int]:
        """What was sampled so far."""
        return self.ids[self.prompt_tokens :]

    @property
    def missing(self) -> int:
        """How many ids its slot does not hold yet; 1: ready to sample the next token."""
        return len(self.ids) - (len(self.slot.ids) if self.slot else 0)

    def choice(self) -> Choice:
        """How its next token is sampled; takes one random number."""
        s = self.sampling
        early = len(self.ids) - self.prompt_tokens < s.min_new_tokens
        banned = s.never_first if early else frozenset()
        return Choice(self.random.random(), s.temperature, s.top_p, s.top_k, banned)

    def take(self, token: int, logprob: float, version: str) -> None:
        """Append a sampled token."""
        if not self.versions or self.versions[-1][0] != version:
            self.versions.append((version, len(self.ids) - self.prompt_tokens))
        self.ids.append(token)
        self.logprobs.append(logprob)

    def ended(self, decode: Callable[[list[int]], str]) -> Mapping[str, Any] | None:
        """Why the token taken last is the last one, in SGLang's words; None if it is not. Stop strings win over ids, ids over length."""
        output = self.output
        for text in self.sampling.stop:
            # No token is shorter than a byte: this tail holds every new occurrence.
            if text in decode(output[-len(text.encode()) - 1 :]):
                return {"type": "stop", "matched": text}
        if output[-1] in self.sampling.stop_ids:
            return {"type": "stop", "matched": output[-1]}
        if len(output) >= self.sampling.max_new_tokens:
            return {"type": "length", "length": self.sampling.max_new_tokens}
        return None

    def progress(self, version: str) -> Progress:
        """A snapshot for the HTTP side."""
        return Progress(
            tuple(self.output), tuple(self.logprobs), tuple(self.versions), self.cached_tokens, version, self.finish
        )


def aborted(message: str) -> dict[str, Any]:
    """The finish reason of a request that did not end by itself."""
    return {"type": "abort", "message": message, "status_code": None, "err_type": None}
