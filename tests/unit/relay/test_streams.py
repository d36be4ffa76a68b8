"""Bytes arrive once and in order, whatever the carrier does; a hostile other end is refused."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.relay.inside import pipe as pipes
from agentrl.relay.inside import streams as module
from agentrl.relay.inside.pipe import HEAD, Pipe, Violation, confirmed_by
from agentrl.relay.inside.streams import CREDIT, DATA, END, FRAME, OPEN, RESET, Stream, Streams

ROUNDS = 20_000


class Carrier:
    """Two pipes and what is under way between them. ``play`` does what a network may do; nothing is promised but order."""

    def __init__(self, *ends: Streams) -> None:
        self.ends = ends
        self.sent: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self.places = [0, 0]
        self.visits: list[tuple[int, bytes]] = []

    def play(self, what: str, side: int, size: int) -> None:
        """One event at the end ``side``."""
        pipe, other = self.ends[side].pipe, self.ends[1 - side]
        if what == "send":
            message, self.places[side] = pipe.message(self.places[side], size)
            self.sent[side].append(message)
        elif what == "arrive" and self.sent[side]:
            other.receive(self.sent[side].popleft())
        elif what == "cut":
            for queue in self.sent:
                queue.clear()
            self.places = [confirmed_by(self.ends[1 - end].pipe.word()) for end in (0, 1)]
        elif what == "set out":
            self.visits.append((side, pipe.message(pipe.confirmed, size)[0]))
        elif what == "come by" and self.visits:
            # The same visit may be repeated for ever: it stays in the list.
            side, message = self.visits[size % len(self.visits)]
            self.ends[1 - side].receive(message)

    def settle(self) -> None:
        """A carrier that works."""
        for side in (0, 1):
            self.play("set out", side, pipes.MESSAGE)
            self.ends[1 - side].receive(self.visits.pop()[1])


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "arrive", "arrive", "cut", "set out", "come by"]),
        st.sampled_from([0, 1]),
        st.integers(0, 400),
    ),
    max_size=150,
)
PIECES = st.lists(st.binary(min_size=1, max_size=300), max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(PIECES, PIECES), min_size=1, max_size=4), EVENTS)
def test_each_stream_arrives_once_and_in_order(said, events):
    with patch.object(module, "WINDOW", 256), patch.object(module, "CHUNK", 64), patch.object(pipes, "ROOM", 600):
        asyncio.run(_converse(said, events))


async def _converse(said, events):
    heard: dict[int, bytes] = {}

    async def speak(streams: Streams, stream: Stream, pieces: list[bytes]) -> None:
        for piece in pieces:
            await streams.send(stream, piece)
        streams.end(stream)

    async def listen(streams: Streams, stream: Stream) -> bytes:
        parts = []
        while part := await streams.next(stream):
            parts.append(part)
            streams.consumed(stream, len(part))
        return b"".join(parts)

    async def serve(stream: Stream) -> None:
        answers = said[stream.number - 1][1]
        _, heard[stream.number] = await asyncio.gather(speak(host, stream, answers), listen(host, stream))

    program, host = Streams(Pipe()), Streams(Pipe(), serve)
    opened = [program.open() for _ in said]
    asking = asyncio.gather(
        *(
            asyncio.gather(speak(program, stream, questions), listen(program, stream))
            for stream, (questions, _) in zip(opened, said, strict=True)
        )
    )
    carrier = Carrier(program, host)
    for event in events:
        await asyncio.sleep(0)
        carrier.play(*event)
    for _ in range(ROUNDS):
        if asking.done() and len(heard) == len(said):
            break
        carrier.settle()
        await asyncio.sleep(0)
    assert [answer for _, answer in await asking] == [b"".join(answers) for _, answers in said]
    assert [heard[n + 1] for n in range(len(said))] == [b"".join(questions) for questions, _ in said]


async def test_a_stream_that_nobody_reads_stops_at_its_window_and_stops_no_other():
    waiting = asyncio.Event()

    async def serve(stream: Stream) -> None:
        taken = 0
        while part := await host.next(stream):
            host.consumed(stream, len(part))
            taken += len(part)
            if stream.number == 1 and taken == module.WINDOW:
                await waiting.wait()
        host.end(stream)

    program, host = Streams(Pipe()), Streams(Pipe(), serve)
    carrier = Carrier(program, host)
    slow, quick = program.open(), program.open()
    sending = asyncio.create_task(program.send(slow, bytes(4 * module.WINDOW)))
    await program.send(quick, b"hello")
    program.end(quick)
    for _ in range(100):
        await asyncio.sleep(0)
        carrier.settle()
    assert await program.next(quick) == b""
    assert not sending.done()
    assert 2 * module.WINDOW < host.pipe.received < 2 * module.WINDOW + 2000
    waiting.set()
    for _ in range(100):
        await asyncio.sleep(0)
        carrier.settle()
    assert sending.done()
    for task in host.close():
        task.cancel()


async def test_the_pipe_keeps_no_more_than_its_room():
    program = Streams(Pipe())
    sending = [asyncio.create_task(program.send(program.open(), bytes(module.WINDOW))) for _ in range(20)]
    await asyncio.sleep(0)
    assert program.pipe.end < pipes.ROOM + 2 * module.CHUNK
    for task in sending:
        task.cancel()


# ------------------------------------------------------------------------------------------ hostile other ends


def frame(number: int, kind: int, size: int = 0, data: bytes = b"") -> bytes:
    """One frame."""
    return FRAME.pack(number, kind, size) + data


def flood(number: int, size: int) -> Iterator[bytes]:
    """So many bytes for one stream."""
    part = bytes(module.CHUNK)
    for _ in range(size // len(part)):
        yield frame(number, DATA, len(part), part)


@pytest.mark.parametrize(
    "said",
    [
        frame(1, OPEN) + frame(1, OPEN),
        frame(2, OPEN) + frame(1, OPEN),
        frame(1, OPEN) + frame(1, DATA, module.CHUNK + 1),
        frame(1, OPEN) + frame(1, DATA, 0),
        frame(1, OPEN) + frame(1, END) + frame(1, DATA, 1, b"x"),
        frame(1, OPEN) + frame(1, END) + frame(1, END),
        frame(1, OPEN) + frame(1, RESET) + frame(1, RESET),
        frame(1, OPEN) + frame(1, 77),
    ],
)
async def test_what_breaks_the_rules_is_refused(said):
    async def serve(_stream: Stream) -> None:
        await asyncio.Event().wait()

    host = Streams(Pipe(), serve)
    with pytest.raises(Violation):
        host.receive(HEAD.pack(0, 0) + said)
    for task in host.close():
        task.cancel()


async def test_more_than_a_window_is_refused():
    async def serve(_stream: Stream) -> None:
        await asyncio.Event().wait()

    host = Streams(Pipe(), serve)
    host.receive(HEAD.pack(0, 0) + frame(1, OPEN))
    parts = [*flood(1, module.WINDOW + module.CHUNK)]
    for part in parts[:-1]:
        host.receive(HEAD.pack(0, host.pipe.received) + part)
    with pytest.raises(Violation):
        host.receive(HEAD.pack(0, host.pipe.received) + parts[-1])
    for task in host.close():
        task.cancel()


def test_what_was_received_is_confirmed_also_by_an_end_that_has_nothing_to_say():
    pipe = Pipe()
    pipe.accept(HEAD.pack(0, 0) + bytes(pipes.CONFIRM_EVERY - 1))
    assert not pipe.due(pipe.end)
    pipe.accept(HEAD.pack(0, pipe.received) + b"x")
    assert pipe.due(pipe.end)
    assert confirmed_by(pipe.word()) == pipes.CONFIRM_EVERY
    assert not pipe.due(pipe.end)


@pytest.mark.parametrize(
    "message",
    [b"short", HEAD.pack(1, 0), HEAD.pack(0, 1) + b"later", HEAD.pack(0, 0) + bytes(pipes.MESSAGE + 1)],
    ids=["short", "confirms what was not said", "leaves a gap", "long"],
)
def test_messages_out_of_place_are_refused(message):
    with pytest.raises(Violation):
        Pipe().accept(message)


async def test_a_flood_of_small_frames_is_handled_bit_by_bit():
    streams = Streams(Pipe())
    stream = streams.open()
    streams.put(HEAD.pack(0, 0) + frame(1, CREDIT, 1) * (2 * module.FRAMES + 1))
    steps = [(streams.handle(), stream.may_send - module.WINDOW) for _ in range(3)]
    assert steps == [(True, module.FRAMES), (True, 2 * module.FRAMES), (False, 2 * module.FRAMES + 1)]


def test_only_the_program_opens_streams():
    with pytest.raises(Violation):
        Streams(Pipe()).receive(HEAD.pack(0, 0) + frame(1, OPEN))


async def test_too_many_streams_are_reset_and_the_others_live():
    async def serve(_stream: Stream) -> None:
        await asyncio.Event().wait()

    host = Streams(Pipe(), serve)
    numbers = range(1, module.MAX_STREAMS + 2)
    host.receive(HEAD.pack(0, 0) + b"".join(frame(number, OPEN) for number in numbers))
    message, _ = host.pipe.message(0)
    assert message[HEAD.size :] == frame(numbers[-1], RESET)
    assert len(host.close()) == module.MAX_STREAMS


async def test_what_comes_late_for_a_forgotten_stream_is_dropped():
    program = Streams(Pipe())
    stream = program.open()
    program.forget(stream)
    late = frame(1, DATA, 3, b"abc") + frame(1, CREDIT, 5) + frame(1, END)
    program.receive(HEAD.pack(0, 0) + late)
    assert not stream.inbox
