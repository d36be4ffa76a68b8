"""JSON at the edges."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agentrl.gateway.wire import dumps, loads_object

TEXT = st.text(st.characters())  # lone surrogates included
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)


def readable(value):
    """``value`` as any reader may see it: no lone surrogates."""
    return json.loads(json.dumps(value).encode("utf-16", "surrogatepass").decode("utf-16"), parse_float=float)


@given(VALUES)
def test_everything_that_python_can_hold_is_written_as_valid_utf8_json(value):
    json.loads(dumps({"v": value}).decode("utf-8"))


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**63), 2**63 - 1)))
def test_what_is_written_is_read_again(value):
    assert loads_object(dumps(value)) == value


@given(VALUES)
def test_a_body_with_escaped_surrogates_is_read_without_them(value):
    read = loads_object(json.dumps({"v": value}).encode())
    json.dumps(read, ensure_ascii=False).encode("utf-8")


def test_bytes_that_are_no_utf8_are_read_with_replacements():
    assert loads_object(b'{"a": "x\xffy"}') == {"a": "x\ufffdy"}
