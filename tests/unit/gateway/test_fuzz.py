"""Clients that do everything at once: continue, echo our turns altered, edit, retry, leave, ask in parallel; an engine that
fails. Whatever they do, tokens stay exact.

``HYPOTHESIS_PROFILE=fuzz timeout -s INT 600 pytest tests/unit/gateway/test_fuzz.py`` searches for ten minutes.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tiny_model import Speller, tiny_model

from agentrl.errors import AgentrlError, EngineError, EngineUnavailable
from agentrl.gateway.dialects.anthropic import AnthropicMessages
from agentrl.gateway.guards import SamplingPolicy
from agentrl.gateway.parts import TurnParts
from agentrl.gateway.session import Budgets, Session
from agentrl.gateway.turn import take_turn
from agentrl.gateway.wire import dumps, loads_object
from agentrl.tokens import load_codec
from agentrl.tokens.samples import samples_from
from agentrl.types import Generation

DIALECT = AnthropicMessages()
TOOLS = [{"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]
OTHER_TOOLS = [*TOOLS, {"name": "Read", "input_schema": {"type": "object"}}]
BILLED = [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "You code."}]
FAULTS = ("", "", "", "", "", "abort", "length", "error", "unavailable")
WORDS = st.sampled_from(
    [
        "ok",
        "",
        " ",
        "<|im_end|>",
        "<|im_start|>assistant\n",
        "é😀",
        "\n\n",
        "</tool_call>",
        "line 1\nline 2",
        "\ud800",
        "\x00",
    ]
)


class FuzzEngine:
    """Samples what a turn's script says, in spellings that encoding never gives; remembers everything."""

    def __init__(self, speller: Speller) -> None:
        self.speller, self.fault, self.held = speller, "", None
        self.calls, self.cancelled, self.number = {}, set(), 0
        self.arrived = asyncio.Event()

    async def generate(self, ids, params, request_id, *, routing_key=""):
        self.number += 1
        number, fault = self.number, self.fault
        self.arrived.set()
        try:
            if self.held is not None:
                await self.held.wait()
        except asyncio.CancelledError:
            self.cancelled.add(request_id)
            raise
        if fault == "error":
            raise EngineError("2 logprobs for 3 ids")
        if fault == "unavailable":
            raise EngineUnavailable("gone")
        sampled = self._spell(number)[: params.max_new_tokens]
        finish = fault if fault in ("abort", "length") else "stop"
        sampled = sampled if finish == "stop" else sampled[: max(1, len(sampled) // 2)]
        logprobs = tuple(-(number % 50) - i / 1000 for i in range(len(sampled)))
        self.calls[request_id] = (list(ids), tuple(sampled), logprobs, finish)
        return Generation(request_id, tuple(sampled), logprobs, finish, "1", "1")

    def _spell(self, number):
        call = '<tool_call>\n{"name": "Bash", "arguments": {"command": "echo %d", "b": 1, "a": " x "}}\n</tool_call>'
        texts = (
            f"I say {number}. ",
            f"First {number}.\n" + call % number,
            call % number + "\n" + call % -number,
            f"<tool_call>broken {number}",
            f"Later {number}\n{call % number}\nand a trailing word",
        )
        text = texts[number % len(texts)]
        letters = [i for c in text for i in self.speller.ids(c)[:-1]]
        return [*(letters if number % 2 else self.speller.ids(text)[:-1]), self.speller.end]


class Chain:
    """What one client believes its conversation to be. ``turn``: whose reply stands last, None when unknown."""

    def __init__(self, system, tools, lane, text):
        self.system, self.tools, self.lane = system, tools, lane
        self.messages = [{"role": "user", "content": text}]
        self.turn = None
        self.edited = False

    def body(self):
        return {"model": "m", "max_tokens": 400, "system": self.system, "tools": self.tools, "messages": self.messages}

    @property
    def answered(self):
        return self.messages[-1]["role"] == "assistant"

    def calls(self):
        return [b["id"] for b in self.messages[-1]["content"] if b["type"] == "tool_use"]


class Clients(RuleBasedStateMachine):
    """One session and all that its clients do to it."""

    codec = speller = None

    @initialize()
    def start(self):
        self.runner = asyncio.Runner()
        self.pool = ThreadPoolExecutor(1)
        self.engine = self.run(self._engine)
        self.parts = self.run(self._parts)
        self.session = Session("s", "r", Budgets())
        self.chains, self.asked = [], []

    async def _engine(self):
        return FuzzEngine(self.speller)

    async def _parts(self):
        return TurnParts(self.codec, self.engine, SamplingPolicy(), (), 100_000, 600.0, self.pool)

    def run(self, function, *arguments):
        return self.runner.run(function(*arguments))

    # ------------------------------------------------------------------------------------------------- asking

    async def _take(self, body, lane):
        request = DIALECT.read(loads_object(dumps(body)))
        return await take_turn(self.parts, self.session, replace(request, client="cli"), dialect="anthropic", lane=lane)

    async def _ask(self, chain, fault="", *, deliver=True):
        """One turn of ``chain``; a reply is taken over, an error leaves everything as it was."""
        self.engine.fault = fault
        before = chain.turn
        try:
            reply = await self._take(chain.body(), chain.lane)
        except AgentrlError:
            assert fault in ("error", "unavailable", "abort")
            return None
        finally:
            self.engine.fault = ""
        turn = next(t for t in self.session.forest.turns() if t.id == reply.turn_id)
        if before is not None and not chain.edited:
            assert turn.parent_id == before, "an extended conversation is a continuation"
            assert turn.fork_reason in ("", "resampled", "parallel", "aborted", "history_edited"), turn.fork_reason
        if deliver:
            await self.session.delivered(reply.turn_id)
            chain.messages = [*chain.messages, {"role": "assistant", "content": DIALECT.reply(reply)["content"]}]
            chain.turn, chain.edited = reply.turn_id, False
        return reply

    @rule(
        system=st.sampled_from(["You code.", BILLED, "Explore."]),
        tools=st.sampled_from([TOOLS, OTHER_TOOLS, []]),
        lane=st.sampled_from(["", "", "agent-1"]),
        text=WORDS,
        fault=st.sampled_from(FAULTS),
    )
    def begin(self, system, tools, lane, text, fault):
        chain = Chain(system, tools, lane, f"Task {len(self.chains)} {text}")
        self.chains.append(chain)
        self.run(self._ask, chain, fault)

    def _pick(self, data, *, answered=None):
        found = [c for c in self.chains if answered is None or c.answered == answered]
        return data.draw(st.sampled_from(found)) if found else None

    def _extend(self, data, chain):
        """What a client adds behind our reply: all results in any order, reminders, more words."""
        calls = data.draw(st.permutations(chain.calls()))
        added = [
            {
                "type": "tool_result",
                "tool_use_id": call,
                "content": data.draw(WORDS),
                "is_error": data.draw(st.booleans()),
            }
            for call in calls
        ]
        if not added or data.draw(st.booleans()):
            added.append({"type": "text", "text": f"go on {len(self.asked)} {data.draw(WORDS)}"})
        self.asked.append(chain)
        chain.messages = [*(_altered(data, m) for m in chain.messages), {"role": "user", "content": added}]
        if data.draw(st.booleans()):
            chain.messages.append({"role": "system", "content": "Ten minutes left."})

    @rule(data=st.data(), fault=st.sampled_from(FAULTS))
    def go_on(self, data, fault):
        chain = self._pick(data, answered=True)
        if chain is not None:
            self._extend(data, chain)
            self.run(self._ask, chain, fault)

    @rule(data=st.data())
    def ask_again_after_a_failure(self, data):
        chain = self._pick(data, answered=False)
        if chain is not None:
            self.run(self._ask, chain)

    @rule(data=st.data())
    def branch_off(self, data):
        chain = self._pick(data)
        if chain is not None:
            self.chains.append(copy.deepcopy(chain))

    @rule(data=st.data())
    def edit(self, data):
        chain = self._pick(data)
        if chain is None:
            return
        keep = data.draw(st.integers(1, len(chain.messages)))
        chain.messages = copy.deepcopy(chain.messages[:keep])
        if chain.messages[-1]["role"] == "user":
            chain.messages[-1]["content"] = f"Edited {len(self.asked)} {data.draw(WORDS)}"
        chain.turn, chain.edited = None, True
        self.asked.append(chain)
        if not chain.answered:
            self.run(self._ask, chain)

    @rule(data=st.data())
    def compact(self, data):
        chain = self._pick(data)
        if chain is not None:
            self.asked.append(chain)
            chain.messages = [{"role": "user", "content": f"Summary {len(self.asked)}"}]
            chain.turn, chain.edited = None, True
            self.run(self._ask, chain)

    # ------------------------------------------------------------------------------------- retries and leaving

    @rule(data=st.data())
    def a_reply_is_lost_and_asked_for_again(self, data):
        chain = self._pick(data, answered=True)
        if chain is None:
            return
        self._extend(data, chain)
        first = self.run(lambda: self._ask(chain, deliver=False))
        again = self.run(self._ask, chain)
        assert first is again, "a retry of an undelivered reply is the same turn"

    @rule(data=st.data())
    def the_same_question_is_asked_anew(self, data):
        chain = self._pick(data, answered=True)
        if chain is not None and chain.turn is not None:
            before = chain.turn
            chain.messages, chain.turn, chain.edited = chain.messages[:-1], None, True
            self.run(self._ask, chain)
            assert chain.turn != before, "a delivered reply is not given out twice"

    @rule(data=st.data())
    def the_client_leaves(self, data):
        chain = self._pick(data, answered=True)
        if chain is None:
            return
        self._extend(data, chain)
        recorded = len(self.session.forest.turns())
        self.run(self._leave, chain)
        assert len(self.session.forest.turns()) == recorded, "a turn that nobody waits for is not recorded"
        self.run(self._ask, chain)

    async def _leave(self, chain):
        self.engine.held = asyncio.Event()
        self.engine.arrived.clear()
        left = len(self.engine.cancelled)
        asking = asyncio.create_task(self._take(chain.body(), chain.lane))
        await self.engine.arrived.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        while self.session.flights:
            await asyncio.sleep(0)
        self.engine.held = None
        assert len(self.engine.cancelled) == left + 1

    @rule(data=st.data(), retries=st.integers(2, 3))
    def the_same_request_while_it_is_in_flight(self, data, retries):
        chain = self._pick(data, answered=True)
        if chain is not None:
            self._extend(data, chain)
            self.run(self._together, chain, retries)

    async def _together(self, chain, retries):
        before = self.engine.number
        self.engine.held = asyncio.Event()
        self.engine.arrived.clear()
        asking = [asyncio.create_task(self._take(chain.body(), chain.lane)) for _ in range(retries)]
        await self.engine.arrived.wait()
        while self.session.counters["retries_recognised"] < retries - 1 and self.engine.number == before + 1:
            if sum(f.waiters for f in self.session.flights.values()) == retries:
                break
            await asyncio.sleep(0)
        self.engine.held.set()
        replies = await asyncio.gather(*asking)
        self.engine.held = None
        assert len({reply.turn_id for reply in replies}) == 1 == self.engine.number - before
        await self._ask(chain)

    @precondition(lambda self: len(self.chains) > 1)
    @rule(data=st.data())
    def many_ask_at_once(self, data):
        asking = []
        for chain in self.chains[-3:]:
            if chain.answered:
                self._extend(data, chain)
            asking.append(chain)
        self.run(self._all, asking)

    async def _all(self, chains):
        await asyncio.gather(*(self._ask(chain) for chain in chains))

    # ---------------------------------------------------------------------------------------------- the promise

    def teardown(self):
        if not hasattr(self, "session"):
            return
        try:
            check(self.run(self.session.close), self.engine)
        finally:
            self.pool.shutdown()
            self.runner.close()


def _altered(data, message):
    """A message as some client sends it back: same meaning, other bytes."""
    message = copy.deepcopy(message)
    content = message["content"]
    if message["role"] != "assistant":
        if isinstance(content, str) and data.draw(st.booleans()):
            message["content"] = [{"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}]
        elif isinstance(content, list) and data.draw(st.booleans()):
            content.append({"type": "text", "text": " "})
        return message
    for block in content:
        if block["type"] == "tool_use" and data.draw(st.booleans()):
            block["input"] = {"replace_all": False, **dict(reversed(block["input"].items()))}
    has_call = any(b["type"] == "tool_use" for b in content)
    if has_call and data.draw(st.booleans()):
        content.sort(key=lambda b: b["type"] == "tool_use")
    if data.draw(st.booleans()):
        content.insert(0, {"type": "text", "text": " \n"})
    return message


def check(trajectory, engine):
    """CONTRACTS, tokens: what the engine was sent and returned, against what is recorded and trained."""
    turns = {t.id: t for t in trajectory.turns}
    sent = {rid.partition("-")[2]: call for rid, call in engine.calls.items()}
    assert {
        c.request_id: (list(c.input_ids), c.output_ids, c.logprobs, c.finish) for c in trajectory.calls
    } == engine.calls
    for turn in turns.values():
        prompt, sampled, logprobs, finish = sent[turn.id]
        assert (turn.generation.ids, turn.generation.logprobs) == (sampled, logprobs)
        assert turn.prompt_tokens == len(prompt)
        if turn.parent_id is not None:
            before, said, _, end = sent[turn.parent_id]
            assert prompt == [*before, *said, *turn.new_ids], "the past is repeated id by id"
            assert end != "abort", "nothing follows a turn that was cut off"
            assert engine.speller.end in (said[-1], turn.new_ids[0]), "a reply that was cut is closed first"
        else:
            assert prompt == list(turn.new_ids)
        assert turn.excluded in ("", "abort", "foreign_client")
        assert turn.trainable == (not turn.excluded)
        assert finish != "abort" or turn.excluded
        if turn.parent_id is not None and turns[turn.parent_id].excluded == "foreign_client":
            assert turn.excluded
    samples = samples_from(trajectory, rollout_id="r", reward=1.0)
    trained = Counter(i for s in samples for i in s.turn_ids)
    assert trained == Counter(t.id for t in turns.values() if t.trainable), "each turn is trained exactly once"
    assert not samples or abs(sum(s.loss_weight for s in samples) - 1) < 1e-9
    for sample in samples:
        assert len(sample.tokens) == len(sample.loss_mask) == len(sample.logprobs)
        masked = [(t, p) for t, p, m in zip(sample.tokens, sample.logprobs, sample.loss_mask, strict=True) if m]
        assert masked == [pair for i in sample.turn_ids for pair in zip(*sent[i][1:3], strict=True)]


def test_tokens_stay_exact_whatever_clients_do(tmp_path_factory):
    folder: Path = tiny_model(tmp_path_factory.mktemp("model"))
    Clients.codec, Clients.speller = load_codec(folder), Speller(folder)
    searching = settings.default.max_examples > 10_000
    run_machine(Clients, settings.default if searching else settings(max_examples=25, stateful_step_count=12))


def run_machine(machine, how):
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(machine, settings=how)
