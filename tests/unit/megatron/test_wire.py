import asyncio
import json
import socket
import struct

import numpy as np
import pytest

from agentrl_megatron.wire import Message, decode, encode, receive, receive_blocking

MESSAGE = Message(
    "train",
    {"n": 2, "text": "é"},
    {"0.tokens": np.arange(6, dtype=np.int64).reshape(2, 3), "0.weights": np.array([0.5], np.float32)},
)


def check(message: Message) -> None:
    assert (message.op, dict(message.fields)) == (MESSAGE.op, dict(MESSAGE.fields))
    assert message.arrays.keys() == MESSAGE.arrays.keys()
    for name, array in MESSAGE.arrays.items():
        assert message.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(message.arrays[name], array)


def test_a_message_arrives_at_a_rank_as_it_was_sent_and_can_be_written_to():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode(MESSAGE) * 2)
        check(receive_blocking(theirs))
        second = receive_blocking(theirs)
        check(second)
        second.arrays["0.weights"][0] = 1.0


async def test_a_message_arrives_at_the_driver_in_pieces():
    reader = asyncio.StreamReader()
    task = asyncio.ensure_future(receive(reader))
    for byte in encode(MESSAGE):
        reader.feed_data(bytes([byte]))
    check(await task)


def test_a_driver_that_hangs_up_in_the_middle_is_noticed():
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(encode(MESSAGE)[:-1])
        ours.close()
        with pytest.raises(EOFError):
            receive_blocking(theirs)


def test_only_plain_numbers_travel():
    with pytest.raises(ValueError, match="not object"):
        encode(Message("x", {}, {"a": np.array([{}], dtype=object)}))
    head = json.dumps({"op": "x", "fields": {}, "arrays": [["a", "object", [1]]]}).encode()
    with pytest.raises(ValueError, match="not object"):
        decode(head, struct.pack("P", 0))
