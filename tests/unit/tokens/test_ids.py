"""Ids behind JSON are a sequence like any other."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.tokens.ids import TokenIds, joined

IDS = st.lists(st.integers(0, 300_000), max_size=20)


@given(IDS)
def test_they_equal_any_sequence_of_the_same_ids(ids):
    held = TokenIds.of(ids)
    assert (list(held), len(held), held[:2]) == (ids, len(ids), ids[:2])
    assert held == ids and held == tuple(ids) and held == TokenIds.of(tuple(ids))
    assert held != [*ids, 1] and held != "ids"
    assert hash(held) == hash(tuple(ids))
    assert orjson.loads(b"[%b]" % held.json) == ids


@given(IDS, IDS, IDS)
def test_they_are_joined_without_being_read(a, b, c):
    assert joined([TokenIds.of(a), TokenIds.of(b)]) + c == [*a, *b, *c]


def test_ids_are_not_made_anew_of_ids():
    held = TokenIds.of([1, 2])
    assert TokenIds.of(held) is held


def test_what_is_not_there_is_an_index_error():
    with pytest.raises(IndexError):
        TokenIds.of([1])[1]
