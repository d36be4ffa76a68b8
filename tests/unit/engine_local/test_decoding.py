"""Continuous batching: what one request gets does not depend on the others, and nothing is computed twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from tokenizers import Tokenizer

from agentrl_engine_local.config import read_config
from agentrl_engine_local.decoding import Decoding
from agentrl_engine_local.model import Model
from agentrl_engine_local.requests import Progress, Request, Sampling
from agentrl_engine_local.weights import WeightError, load_folder

WAIT_SEC = 60
PROMPT = list(range(5, 25))
T = TypeVar("T")


class Counted(Model):
    """Remembers how many tokens each step computed."""

    def __init__(self, *args: object, **how: object) -> None:
        super().__init__(*args, **how)
        self.computed: list[int] = []

    def forward(self, spans):
        self.computed.append(sum(len(span.ids) for span in spans))
        return super().forward(spans)


class Running:
    """A decode thread, and requests that are waited for."""

    def __init__(self, folder: Path, *, slots: int = 4, seed: int = 0) -> None:
        config = read_config(folder)
        self.model = Counted(config, dtype=torch.float32, slots=slots, context=200)
        load_folder(self.model.parameters, folder, tied_head=config.tied_head)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.decoding = Decoding(self.model, slots=slots, decode=tokenizer.decode, seed=seed, threads=1)
        self.thread = threading.Thread(target=self.decoding.run)
        self.thread.start()

    def ask(self, prompt: list[int], rid: str = "r", **how: object) -> Future[Progress]:
        done: Future[Progress] = Future()
        sampling = Sampling(**{"max_new_tokens": 12, **how})
        self.decoding.submit(Request(rid, len(prompt), list(prompt), sampling, done.set_result))
        return done

    def interrupt(self, reply: Sampling, post: Callable[[], Future[T]]) -> tuple[Future[Progress], Future[T]]:
        """A reply to the prompt, and the job that ``post`` has asked for between its first token and its second."""
        posted, done = Future(), Future()

        def deliver(progress: Progress) -> None:
            if len(progress.output) == 1:
                posted.set_result(post())
            if progress.finish:
                done.set_result(progress)

        self.decoding.submit(Request("long", len(PROMPT), list(PROMPT), reply, deliver, stream=True))
        return done, posted.result(WAIT_SEC)

    def call(self, job):
        return self.decoding.call(job).result(WAIT_SEC)

    def close(self) -> None:
        self.decoding.stop()
        self.thread.join(WAIT_SEC)
        assert not self.thread.is_alive()


@pytest.fixture
def running(llama: Path) -> Iterator[Running]:
    engine = Running(llama)
    yield engine
    engine.close()


def test_the_same_seed_gives_the_same_reply_in_any_company(running: Running) -> None:
    alone = running.ask(PROMPT, seed=7).result(WAIT_SEC)
    company = [running.ask([*PROMPT[:i], 99], f"c{i}", seed=i) for i in range(1, 4)]
    again = running.ask(PROMPT, "again", seed=7).result(WAIT_SEC)
    assert again.output == alone.output
    assert len({other.result(WAIT_SEC).output for other in company}) == 3


def test_different_seeds_give_different_replies(running: Running) -> None:
    replies = [running.ask(PROMPT, f"s{seed}", seed=seed) for seed in range(6)]
    assert len({reply.result(WAIT_SEC).output for reply in replies}) == 6


def test_without_a_seed_the_engine_s_own_decides(llama: Path) -> None:
    outputs = []
    for seed in (1, 1, 2):
        engine = Running(llama, seed=seed)
        outputs.append(engine.ask(PROMPT).result(WAIT_SEC).output)
        engine.close()
    assert outputs[0] == outputs[1] != outputs[2]


def test_a_group_computes_its_prompt_once(running: Running) -> None:
    running.call(lambda: running.decoding.pause("in_place"))
    group = [running.ask(PROMPT, f"g{i}", seed=i, max_new_tokens=5) for i in range(4)]
    running.call(running.decoding.resume)
    replies = [reply.result(WAIT_SEC) for reply in group]
    assert sorted(reply.cached_tokens for reply in replies) == [0, 19, 19, 19]
    assert sum(running.model.computed) == (len(PROMPT) - 1) + 4 * 5


def test_the_next_turn_computes_only_what_is_new(running: Running) -> None:
    first = running.ask(PROMPT).result(WAIT_SEC)
    before = sum(running.model.computed)
    second = running.ask([*PROMPT, *first.output, 3, 4, 5], max_new_tokens=2).result(WAIT_SEC)
    assert second.cached_tokens == len(PROMPT) + len(first.output) - 1
    assert sum(running.model.computed) - before == 1 + 3 + 1


def test_after_a_flush_nothing_is_reused(running: Running) -> None:
    running.ask(PROMPT).result(WAIT_SEC)
    assert running.call(running.decoding.flush)
    assert running.ask(PROMPT).result(WAIT_SEC).cached_tokens == 0


def test_more_requests_than_slots_wait_their_turn(running: Running) -> None:
    replies = [running.ask([i, i + 1, i + 2], f"w{i}", seed=i) for i in range(10)]
    assert all(reply.result(WAIT_SEC).finish == {"type": "length", "length": 12} for reply in replies)


def test_a_long_prompt_is_cut_into_pieces(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = running.ask(PROMPT, seed=3).result(WAIT_SEC)
    running.call(running.decoding.flush)
    monkeypatch.setattr("agentrl_engine_local.decoding.PROMPT_PIECE", 6)
    running.model.computed.clear()
    assert running.ask(PROMPT, seed=3).result(WAIT_SEC).output == whole.output
    assert running.model.computed[:4] == [6, 6, 6, 1]


def test_abort_of_a_queued_request_gives_nothing(running: Running) -> None:
    running.call(lambda: running.decoding.pause("in_place"))
    reply = running.ask(PROMPT, "queued")
    running.call(lambda: running.decoding.abort("queued"))
    progress = reply.result(WAIT_SEC)
    assert (progress.output, progress.finish["type"]) == ((), "abort")


def test_abort_by_name_leaves_longer_names_alone(running: Running) -> None:
    running.call(lambda: running.decoding.pause("in_place"))
    one, ten = running.ask(PROMPT, "r1"), running.ask(PROMPT, "r10")
    running.call(lambda: running.decoding.abort("r1"))
    running.call(running.decoding.resume)
    assert one.result(WAIT_SEC).finish["type"] == "abort"
    assert ten.result(WAIT_SEC).finish["type"] == "length"


def test_abort_of_a_batch_ends_its_members(running: Running) -> None:
    running.call(lambda: running.decoding.pause("in_place"))
    members: list[Future[Progress]] = [Future(), Future()]
    for i, done in enumerate(members):
        request = Request(f"b_{i}", len(PROMPT), list(PROMPT), Sampling(12), done.set_result, batch="b")
        running.decoding.submit(request)
    other = running.ask(PROMPT, "b_2")
    running.call(lambda: running.decoding.abort("b"))
    running.call(running.decoding.resume)
    assert [done.result(WAIT_SEC).finish["type"] for done in members] == ["abort", "abort"]
    assert other.result(WAIT_SEC).finish["type"] == "length"


@pytest.mark.parametrize("mode", ["retract", "in_place"])
def test_a_paused_reply_goes_on_as_if_nothing_had_happened(running: Running, mode: str) -> None:
    expected = running.ask(PROMPT, seed=11, max_new_tokens=60).result(WAIT_SEC)
    decoding = running.decoding
    done, _ = running.interrupt(Sampling(60, seed=11), lambda: decoding.call(lambda: decoding.pause(mode)))
    running.call(decoding.flush)
    running.call(running.decoding.resume)
    assert done.result(WAIT_SEC).output == expected.output


def test_weights_change_between_requests_not_within_one(running: Running) -> None:
    def change() -> None:
        running.decoding.version = "2"

    done, changed = running.interrupt(Sampling(80), lambda: running.decoding.call_when_quiet(change))
    later = running.ask(PROMPT, "later")
    changed.result(WAIT_SEC)
    assert done.result(WAIT_SEC).versions == (("default", 0),)
    assert later.result(WAIT_SEC).versions == (("2", 0),)


def test_while_paused_weights_change_at_once(running: Running) -> None:
    decoding = running.decoding
    done, _ = running.interrupt(Sampling(80), lambda: decoding.call(lambda: decoding.pause("in_place")))

    def change() -> None:
        decoding.version = "2"

    decoding.call_when_quiet(change).result(WAIT_SEC)
    running.call(decoding.resume)
    assert done.result(WAIT_SEC).versions == (("default", 0), ("2", 1))


def test_broken_weights_end_a_request_instead_of_sampling_noise(running: Running) -> None:
    running.call(lambda: running.model.parameters["model.norm.weight"].fill_(float("nan")))
    progress = running.ask(PROMPT).result(WAIT_SEC)
    assert (progress.output, progress.finish["type"]) == ((), "abort")
    assert "not finite" in progress.finish["message"]


def test_a_job_s_weight_error_is_its_caller_s(running: Running) -> None:
    def fail() -> None:
        raise WeightError("no")

    with pytest.raises(WeightError, match="no"):
        running.call(fail)
    assert running.ask(PROMPT).result(WAIT_SEC).finish["type"] == "length"
