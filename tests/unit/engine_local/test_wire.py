"""Bodies that would be answered with something else than was asked are refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_engine_local.requests import Progress
from agentrl_engine_local.wire import Limits, Refused, answer, read_generate

LIMITS = Limits(context=64, vocab=100, stop_ids=frozenset({2}))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "input_ids"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[]]}, "prompt is empty"),
        ({"input_ids": [1, 100]}, r"\[0, 100\)"),
        ({"input_ids": [-1]}, r"\[0, 100\)"),
        ({"input_ids": [1], "sampling_params": {"presence_penalty": 1}}, "presence_penalty"),
        ({"input_ids": [1], "sampling_params": {"regex": "a+"}}, "regex"),
        ({"input_ids": [1], "sampling_params": {"n": 2}}, "sampling_params"),
        ({"input_ids": [1], "sampling_params": {"max_new_tokens": 3, "min_new_tokens": 4}}, "min_new_tokens"),
        ({"input_ids": [1], "sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"),
        ({"input_ids": [1], "logprob_start_len": 0}, "logprob_start_len"),
        ({"input_ids": [1], "top_logprobs_num": 5}, "top_logprobs_num"),
        ({"input_ids": [[1], [2]], "stream": True}, "batch cannot be streamed"),
        ({"input_ids": [[1], [2]], "rid": ["a"]}, "1 rid for 2 prompts"),
        ([1, 2], "dictionary"),
    ],
)
def test_it_refuses(body: Any, words: str) -> None:
    with pytest.raises(Refused, match=words):
        read_generate(body, LIMITS)


def test_end_ids_are_the_model_s_and_the_request_s() -> None:
    params = {"max_new_tokens": 4, "stop_token_ids": [7]}
    (wanted,), *_ = read_generate({"input_ids": [1], "sampling_params": params}, LIMITS)
    assert wanted.sampling.stop_ids == {2, 7}
    (wanted,), *_ = read_generate({"input_ids": [1], "sampling_params": {**params, "ignore_eos": True}}, LIMITS)
    assert wanted.sampling.stop_ids == frozenset()


def test_a_batch_gets_a_name_each() -> None:
    wanted, batch, _ = read_generate(
        {"input_ids": [[1], [2]], "rid": "x", "sampling_params": {"max_new_tokens": 4}}, LIMITS
    )
    assert (batch, [w.rid for w in wanted]) == (True, ["x_0", "x_1"])


def test_the_most_that_fits_is_accepted() -> None:
    body = {"input_ids": [1] * 60, "sampling_params": {"max_new_tokens": 4}}
    assert len(read_generate(body, LIMITS)[0]) == 1
    body["sampling_params"] = {"max_new_tokens": 5}
    with pytest.raises(Refused, match="context length of 64 tokens"):
        read_generate(body, LIMITS)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_version_spans_cover_the_output_without_gap(lengths: list[int]) -> None:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    output = tuple(range(sum(lengths)))
    progress = Progress(
        output, tuple(-1.0 for _ in output), tuple((str(s), s) for s in starts), 0, "last", {"type": "x"}
    )
    (wanted,), *_ = read_generate({"input_ids": [1], "sampling_params": {"max_new_tokens": 4}}, LIMITS)
    spans = answer(wanted, progress, lambda ids, **_: "", 0.0)["meta_info"]["weight_versions"]
    assert [span["end"] - span["start"] for span in spans] == lengths
    assert spans[0]["start"] == 0
    assert all(a["end"] == b["start"] for a, b in itertools.pairwise(spans))
