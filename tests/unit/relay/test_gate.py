"""What may pass from a sandbox to the gateway."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.relay.gate import MAX_HEAD, Gate
from agentrl.relay.inside.carry import Refused

ROOT = "/s/our-token_1"
HOST = b"Host: 127.0.0.1\r\n"
REQUESTS = (
    b"GET /s/our-token_1 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"HEAD /s/our-token_1/ HTTP/1.0\r\n\r\n",
    b"POST /s/our-token_1/v1/messages?beta=true HTTP/1.1\r\n" + HOST + b"Content-Length: 12\r\nX-Empty:\r\n\r\nGET / HTTP/\n",
    b"POST /s/our-token_1/v1/a:b HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n",
    b"POST /s/our-token_1/v1 HTTP/1.1\r\ntransfer-encoding: Chunked \r\n\r\n3;a=b\r\nabc\r\n1A\r\n" + bytes(26) + b"\r\n0\r\n\r\n",
    "POST /s/our-token_1/v1 HTTP/1.1\r\nX-Word: \tgrün\r\n\r\n".encode(),
)  # fmt: skip


@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=4).map(b"".join), st.data())
def test_requests_pass_as_they_are_however_they_are_cut(said, data):
    places = data.draw(st.lists(st.integers(0, len(said)), max_size=12))
    gate = Gate(ROOT)
    passed = b"".join(gate.admit(said[a:b]) for a, b in pairwise(sorted({0, *places, len(said)})))
    assert passed == said


def head(line: str, *fields: str) -> bytes:
    """The head of a request."""
    return "\r\n".join((line, *fields, "", "")).encode()


POST = "POST /s/our-token_1/v1 HTTP/1.1"
CHUNKED = head(POST, "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (head("GET /health HTTP/1.1"), 403),
        (head("GET / HTTP/1.1"), 403),
        (head("POST /s/other-token/v1 HTTP/1.1"), 403),
        (head("POST /s/our-token_12/v1 HTTP/1.1"), 403),
        (head("POST /s/our-token_1/../other/v1 HTTP/1.1"), 403),
        (head("POST /s/our-token_1/%2e%2e/other HTTP/1.1"), 403),
        (head("POST http://elsewhere/s/our-token_1/v1 HTTP/1.1"), 403),
        (head("CONNECT 127.0.0.1:22 HTTP/1.1"), 403),
        (head("POST /s/our-token_1/v1 HTTP/2"), 403),
        (head("POST  /s/our-token_1/v1 HTTP/1.1"), 403),
        (b"\x16\x03\x01\r\n\r\n", 403),
        (b"SSH-2.0-x\r\n\r\n", 403),
        (head(POST, "Content-Length: 3", "Transfer-Encoding: chunked"), 400),
        (head(POST, "Content-Length: 3", "Content-Length: 4"), 400),
        (head(POST, "Content-Length: +3"), 400),
        (head(POST, "Content-Length: 3, 3"), 400),
        (head(POST, "Content-Length: " + "9" * 5000), 400),
        (head(POST, "Content-Length : 3"), 400),
        (head(POST, "X: a", " folded: b"), 400),
        (head(POST, "X: a\nContent-Length: 3"), 400),
        (head(POST, "X: a\rContent-Length: 3"), 400),
        (head(POST, "X: a\0"), 400),
        (head(POST, "no colon"), 400),
        (head(POST, "Transfer-Encoding: gzip, chunked"), 501),
        (CHUNKED + b"x\r\n", 400),
        (CHUNKED + b"-1\r\n", 400),
        (CHUNKED + b"3\r\nabc\r\n0\r\nX:POST /s/our-token_1/v1 HTTP/1.1\r\n\r\n", 400),
    ],
)
@pytest.mark.parametrize("before", [b"", REQUESTS[2]])
def test_anything_else_is_refused(said, status, before):
    gate = Gate(ROOT)
    assert gate.admit(before) == before
    passed = b""
    with pytest.raises(Refused) as refused:
        for place in range(len(said)):
            passed += gate.admit(said[place : place + 1])
    assert refused.value.answer.startswith(b"HTTP/1.1 %d " % status)
    # Of a request whose head is refused not one byte has passed.
    assert not passed or said.startswith(CHUNKED)


def test_a_head_that_never_ends_is_refused():
    gate = Gate(ROOT)
    assert gate.admit(POST.encode() + b"\r\nX: " + bytes(b"a" * (MAX_HEAD - 100))) == b""
    with pytest.raises(Refused):
        gate.admit(b"a" * 200)


# What a request may be made of, and what an attacker would try, in any order.
WORDS = st.lists(
    st.sampled_from(
        [
            b"POST /s/our-token_1/v1 HTTP/1.1\r\n",
            b"GET /s/our-token_1 HTTP/1.0\r\n",
            b"GET /other HTTP/1.1\r\n",
            b"GET /other HTTP/1.1\r\n\r\n",
            b"Host: x\r\n",
            b"Content-Length: 4\r\n",
            b"Content-Length: 27\r\n",
            b"content-length:0\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding:\tchunked\r\n",
            b"Connection: close\r\n",
            b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
            b"Expect: 100-continue\r\n",
            b"X: y\r\n",
            b"\r\n",
            b"\n",
            b"\r",
            b"0\r\n\r\n",
            b"0\r\n",
            b"4\r\nabcd\r\n",
            b"1b\r\n",
            b"4;x=y\r\n",
            b"abcd",
        ]
    ),
    max_size=16,
)


@settings(max_examples=600, deadline=None)
@given(WORDS.map(b"".join))
def test_the_gateways_own_parser_finds_nothing_else_in_what_passed(said):
    gate, passed = Gate(ROOT), b""
    with suppress(Refused):
        for place in range(len(said)):
            passed += gate.admit(said[place : place + 1])
    loop = asyncio.new_event_loop()
    try:
        parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
        with suppress(HttpProcessingError):
            messages, _, _ = parser.feed_data(passed)
            assert {message.path for message, _ in messages} <= {ROOT, f"{ROOT}/v1"}
    finally:
        loop.close()
