from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.errors import EngineError
from agentrl.tokens.forest import Forest, Placement
from agentrl.types import Block, ChatRequest, Generation, Message, Text, Thinking, Tool, ToolCall, ToolResult, Turn

BASH = Tool("bash", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
SYSTEM = Message("system", (Text("You fix bugs."),))


def user(*texts: str) -> Message:
    return Message("user", tuple(map(Text, texts)))


def said(*blocks: Block) -> Message:
    return Message("assistant", blocks)


def call(n: int, **arguments: object) -> ToolCall:
    return ToolCall(f"call_{n}", "bash", arguments or {"command": "ls"})


def result(n: int, text: str = "ok") -> Message:
    return Message("tool", (ToolResult(f"call_{n}", text),))


def request(*messages: Message, tools: Iterable[Tool] = (BASH,)) -> ChatRequest:
    return ChatRequest("m", messages, tuple(tools))


class Session:
    """A gateway in small: every new message and every reply gets ids of its own, so that mix-ups show."""

    def __init__(self) -> None:
        self.forest = Forest()
        self.count = 0

    def ids(self, n: int = 1) -> tuple[int, ...]:
        self.count += n
        return tuple(range(self.count - n, self.count))

    def begin(self, asked: ChatRequest, lane: str = "") -> tuple[Placement, str]:
        placement = self.forest.place(asked, lane=lane)
        return placement, self.forest.begin(placement)

    def commit(self, turn_id: str, reply: Message, finish: Literal["stop", "length", "abort"] = "stop") -> Turn:
        ids = self.ids(2)
        generation = Generation("r", ids, (-0.5,) * len(ids), finish)
        return self.forest.commit(
            turn_id, new_ids=self.ids(), generation=generation, reply=reply, started_at=1.0, duration_sec=0.5
        )

    def turn(self, asked: ChatRequest, reply: Message, lane: str = "", finish="stop") -> Turn:
        _, turn_id = self.begin(asked, lane)
        turn = self.commit(turn_id, reply, finish)
        self.forest.delivered(turn_id)
        return turn


@pytest.fixture
def session() -> Session:
    return Session()


START = (SYSTEM, user("Fix it."))
REPLY = said(Text("I look.\n"), call(1, command="cd /w && ls ", timeout="5000"))


def test_a_first_request_is_a_root_without_reason(session):
    placement = session.forest.place(request(*START))
    assert placement == Placement(None, START, (), "", None)


def test_a_continuation_brings_only_what_is_new(session):
    first = session.turn(request(*START), REPLY)
    placement = session.forest.place(request(*START, REPLY, result(1)))
    assert placement == Placement(first.id, (result(1),), (*START, REPLY), "", None)


def test_ids_of_a_turn_start_with_the_exact_ids_before_it(session):
    first = session.turn(request(*START), REPLY)
    second = session.turn(request(*START, REPLY, result(1)), said(call(2)))
    ids = [*first.new_ids, *first.generation.ids, *second.new_ids, *second.generation.ids]
    assert list(session.forest.prompt(second.id)) == ids
    assert second.prompt_tokens == len(ids) - len(second.generation.ids)
    assert session.forest.turns() == (first, second)
    assert session.forest.stored_reply(first.id) == REPLY


ECHOES = {
    "blank text dropped": (Text("I look.\n"), Text(" \n"), call(1)),
    "keys reordered and defaults added": (Text("I look."), call(1, timeout=5000, command="ls", replace_all=False)),
    "trailing spaces cut": (Text("I look."), call(1, command="ls")),
    "text behind the call moved": (Text("Then"), Text("I look."), call(1)),
    "one of two calls dropped": (call(1),),
    "reasoning echoed": (Thinking("hm", signature="s"), Text("I look."), call(1)),
    "unparsed input": (call(1, __unparsedToolInput={"raw": "x"}),),
    "text lost": (call(1),),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_our_turn_is_found_by_the_ids_we_minted_however_it_is_echoed(session, echo):
    reply = said(Text("I look.\n"), call(1, command="ls  "), Text("Then"), call(3))
    first = session.turn(request(*START), reply)
    placement = session.forest.place(request(*START, said(*echo), result(1)))
    assert (placement.parent_id, placement.new) == (first.id, (result(1),))
    assert placement.history[-1] == reply


@pytest.mark.parametrize("echo", ["Done. It  works.\n", "Done.\n\nIt works.", " Done. It works. "])
def test_a_text_only_turn_is_found_by_place_and_words(session, echo):
    first = session.turn(request(*START), said(Thinking("hm"), Text("Done. It works.")))
    placement = session.forest.place(request(*START, said(Text(echo)), user("More.")))
    assert (placement.parent_id, placement.fork_reason) == (first.id, "")


def test_an_answer_split_into_several_messages_is_one_turn(session):
    first = session.turn(request(*START), said(Thinking("hm"), Text("Done."), call(1)))
    echo = (said(Thinking("hm")), said(Text("Done.")), said(call(1)))
    placement = session.forest.place(request(*START, *echo, result(1)))
    assert (placement.parent_id, placement.new) == (first.id, (result(1),))


def test_renamed_call_ids_are_recognised_and_turned_back(session):
    first = session.turn(request(*START), said(call(1), call(2, command="pwd")))
    echo = said(replace(call(1), id="x1"), replace(call(2, command="pwd"), id="x2"))
    results = (Message("tool", (ToolResult("x2", "b"), ToolResult("x1", "a"))),)
    placement = session.forest.place(request(*START, echo, *results))
    assert placement.parent_id == first.id
    assert placement.new == (Message("tool", (ToolResult("call_2", "b"), ToolResult("call_1", "a"))),)
    second = session.turn(request(*START, echo, *results), said(call(3)))
    assert session.forest.place(request(*START, echo, *results, said(call(3)), result(3))).parent_id == second.id


def test_blocks_may_be_regrouped_into_other_messages(session):
    session.turn(request(SYSTEM, user("a", "b")), said(call(1)))
    second = session.turn(request(SYSTEM, user("a"), user("b"), said(call(1)), result(1)), said(call(2)))
    placement = session.forest.place(
        request(SYSTEM, user("a", " ", "b"), said(call(1)), result(1), said(call(2)), result(2))
    )
    assert (placement.parent_id, placement.fork_reason) == (second.id, "")


def test_billing_lines_are_no_history_and_no_prompt(session):
    def asked(hexes: str, *more: Message) -> ChatRequest:
        billing = Text(f"x-anthropic-billing-header: cc_version=2.1.{hexes};")
        return request(Message("system", (billing, Text("You fix bugs."))), user("Fix it."), *more)

    first = session.turn(asked("0af"), REPLY)
    assert session.forest.place(asked("91c", REPLY, result(1))).parent_id == first.id
    assert session.forest.place(asked("0af")).new == START


def test_a_system_message_of_nothing_but_billing_disappears(session):
    billing = Message("system", (Text("x-anthropic-billing-header: a;"),))
    assert session.forest.place(request(billing, user("x"))).new == (user("x"),)


def test_tools_are_the_same_in_any_order_of_their_keys(session):
    first = session.turn(request(*START), REPLY)
    shuffled = replace(BASH, parameters=dict(reversed(BASH.parameters.items())))
    assert session.forest.place(request(*START, REPLY, result(1), tools=[shuffled])).parent_id == first.id


# ------------------------------------------------------------------------------------------------------- forks


def test_another_system_prompt_is_a_new_root(session):
    session.turn(request(*START), REPLY)
    placement = session.forest.place(request(Message("system", (Text("Other."),)), user("Fix it."), REPLY, result(1)))
    assert (placement.parent_id, placement.fork_reason) == (None, "system_changed")


def test_other_tools_are_a_new_root(session):
    session.turn(request(*START), REPLY)
    placement = session.forest.place(request(*START, REPLY, result(1), tools=[BASH, replace(BASH, name="edit")]))
    assert (placement.parent_id, placement.fork_reason) == (None, "tools_changed")


def test_a_restart_from_a_summary_is_a_compaction(session):
    session.turn(request(*START), REPLY)
    placement = session.forest.place(request(SYSTEM, user("Summary: so far I looked.")))
    assert (placement.parent_id, placement.fork_reason) == (None, "compaction")


def test_a_new_lane_is_a_subagent(session):
    session.turn(request(*START), REPLY, lane="main")
    placement = session.forest.place(request(*START, REPLY, result(1), user("Help.")), lane="agent-1")
    assert placement.fork_reason == ""
    session.turn(request(*START, REPLY, result(1)), said(call(2)), lane="main")
    placement = session.forest.place(request(*START, REPLY, result(1), user("Help.")), lane="agent-1")
    assert placement.fork_reason == "subagent"
    assert session.forest.place(request(user("Search.")), lane="agent-1").fork_reason == "subagent"


def test_another_conversation_without_a_lane_is_a_subagent(session):
    session.turn(request(*START), REPLY)
    asked = request(Message("system", (Text("You search."),)), user("Search."))
    assert session.forest.place(asked).fork_reason == "subagent"
    session.turn(asked, said(Text("Found.")))
    assert session.forest.place(request(*START, REPLY, result(1))).fork_reason == ""


def test_an_edited_tool_result_forks_where_it_was_edited(session):
    first = session.turn(request(*START), said(call(1)))
    session.turn(request(*START, said(call(1)), result(1)), said(Text("Hm."), call(2)))
    echo = said(call(2, command="altered"))
    asked = request(*START, said(call(1)), result(1, "cleared"), echo, result(2))
    placement = session.forest.place(asked)
    assert (placement.parent_id, placement.fork_reason) == (first.id, "history_edited")
    assert placement.new == (result(1, "cleared"), said(Text("Hm."), call(2)), result(2))
    third = session.turn(asked, said(call(3)))
    again = session.forest.place(request(*asked.messages, said(call(3)), result(3)))
    assert (again.parent_id, again.fork_reason) == (third.id, "")


def test_a_discarded_reply_with_a_reminder_is_a_sibling(session):
    session.turn(request(*START), said(call(1)))
    session.turn(request(*START, said(call(1)), result(1)), said(Text("")))
    placement = session.forest.place(request(*START, said(call(1)), result(1), user("Please answer.")))
    assert placement.fork_reason == "history_edited"
    assert placement.new == (result(1), user("Please answer."))
    assert placement.duplicate_of is None


def test_siblings_asked_at_the_same_time_are_parallel_and_no_retries(session):
    first = session.turn(request(*START), said(call(1)))
    session.begin(request(*START, said(call(1)), result(1), user("a")))
    placement = session.forest.place(request(*START, said(call(1)), result(1), user("b")))
    assert (placement.parent_id, placement.fork_reason, placement.duplicate_of) == (first.id, "parallel", None)


def test_two_first_requests_at_the_same_time_are_parallel(session):
    session.begin(request(*START))
    assert session.forest.place(request(user("Title?"))).fork_reason == "parallel"


def test_a_placement_without_extension_becomes_a_root_that_can_be_continued(session):
    session.turn(request(*START), REPLY)
    asked = request(*START, said(*REPLY.blocks, Text(" ")), result(1))
    root = session.forest.place(asked).as_root("template_not_prefix_stable")
    assert (root.parent_id, root.history) == (None, ())
    assert (root.new, root.fork_reason) == ((*START, REPLY, result(1)), "template_not_prefix_stable")
    turn_id = session.forest.begin(root)
    assert session.forest.place(asked).duplicate_of == turn_id
    session.commit(turn_id, said(call(2)))
    placement = session.forest.place(request(*asked.messages, said(call(2)), result(2)))
    assert (placement.parent_id, placement.new) == (turn_id, (result(2),))
    assert placement.history == (*START, REPLY, result(1), said(call(2)))


def test_a_reason_found_earlier_is_kept(session):
    session.turn(request(*START), REPLY)
    session.turn(request(*START, REPLY, result(1)), said(call(2)))
    placement = session.forest.place(request(*START, REPLY, result(1, "other")))
    assert placement.as_root("template_not_prefix_stable").fork_reason == "history_edited"


# --------------------------------------------------------------------------------------------- retries and aborts


def test_the_same_request_while_the_first_is_in_flight_is_a_retry(session):
    asked = request(*START)
    _, turn_id = session.begin(asked)
    assert session.forest.place(asked).duplicate_of == turn_id
    assert session.forest.place(asked, lane="other").duplicate_of is None


def test_the_same_request_before_delivery_is_a_retry_and_afterwards_a_new_turn(session):
    asked = request(*START)
    _, turn_id = session.begin(asked)
    session.commit(turn_id, REPLY)
    assert session.forest.place(asked).duplicate_of == turn_id
    session.forest.delivered(turn_id)
    placement = session.forest.place(asked)
    assert (placement.duplicate_of, placement.fork_reason) == (None, "resampled")


def test_a_dropped_turn_leaves_no_trace(session):
    asked = request(*START)
    _, turn_id = session.begin(asked)
    session.forest.drop(turn_id)
    assert session.forest.place(asked) == Placement(None, START, (), "", None)
    assert session.forest.turns() == ()


def test_of_two_equal_replies_the_lane_finds_its_own(session):
    for lane in ("a", "b"):
        session.turn(request(*START), said(Text("Done.")), lane=lane)
    first, second = session.forest.turns()
    asked = request(*START, said(Text("Done.")), user("More."))
    assert session.forest.place(asked, lane="a").parent_id == first.id
    assert session.forest.place(asked, lane="b").parent_id == second.id


def test_nothing_is_appended_to_an_aborted_turn_and_it_is_never_trained(session):
    first = session.turn(request(*START), said(call(1)))
    cut = session.turn(request(*START, said(call(1)), result(1)), said(Text("I wa")), finish="abort")
    assert (cut.trainable, cut.excluded) == (False, "abort")
    placement = session.forest.place(request(*START, said(call(1)), result(1), said(Text("I wa")), user("Go on.")))
    assert (placement.parent_id, placement.fork_reason) == (first.id, "aborted")
    assert placement.new == (result(1), said(Text("I wa")), user("Go on."))


def test_an_aborted_turn_is_asked_anew_even_before_delivery(session):
    _, turn_id = session.begin(request(*START))
    session.commit(turn_id, said(Text("")), "abort")
    assert session.forest.place(request(*START)).duplicate_of is None


def test_a_turn_cut_for_length_is_continued(session):
    first = session.turn(request(*START), said(Text("I wa")), finish="length")
    placement = session.forest.place(request(*START, said(Text("I wa")), user("Go on.")))
    assert (placement.parent_id, placement.fork_reason) == (first.id, "")
    assert first.trainable


@pytest.mark.parametrize(("ids", "logprobs"), [((1, 2), (-1.0,)), ((1, 2), ()), ((), ())])
def test_ids_without_their_logprobs_are_refused(session, ids, logprobs):
    _, turn_id = session.begin(request(*START))
    with pytest.raises(EngineError):
        session.forest.commit(
            turn_id,
            new_ids=(1,),
            generation=Generation("r", ids, logprobs, "stop"),
            reply=REPLY,
            started_at=0.0,
            duration_sec=0.0,
        )
    assert session.forest.turns() == ()


# ------------------------------------------------------------------------------------------------------ properties


def altered(reply: Message, habit: int) -> Message:
    """``reply`` as some client might echo it."""
    texts = [b for b in reply.blocks if isinstance(b, Text)]
    calls = [b for b in reply.blocks if isinstance(b, ToolCall)]
    if habit == 0 or not calls:
        return said(*(Text(f" {t.text}\n") for t in texts), *calls)
    if habit == 1:
        return said(*(replace(c, arguments={"extra": False, **c.arguments}) for c in calls))
    return said(*texts, Text("  "), *(replace(c, arguments={}) for c in calls))


@given(plan=st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 2)), min_size=1, max_size=15))
def test_every_turn_of_any_tree_continues_where_its_conversation_ended(plan):
    """Conversations grow from random turns; replies are echoed with random habits."""
    session = Session()
    ends: list[tuple[Turn | None, tuple[Message, ...]]] = [(None, (SYSTEM,))]
    for n, (pick, uses_tool, habit) in enumerate(plan):
        before, messages = ends[pick % len(ends)]
        reply = said(Text(f"Reply {n}."), *((call(n, command=f"c{n}"),) if uses_tool else ()))
        asked = request(*messages, user(f"Question {n}."))
        placement = session.forest.place(asked)
        assert placement.parent_id == (before.id if before else None)
        assert placement.new[-1] == user(f"Question {n}.")
        turn = session.turn(asked, reply)
        prefix = tuple(session.forest.prompt(before.id)) if before else ()
        assert tuple(session.forest.prompt(turn.id)) == (*prefix, *turn.new_ids, *turn.generation.ids)
        tail = (result(n),) if uses_tool else ()
        ends.append((turn, (*asked.messages, altered(reply, habit), *tail)))
    order = [t.id for t in session.forest.turns()]
    assert all(t.parent_id is None or order.index(t.parent_id) < order.index(t.id) for t in session.forest.turns())


def test_a_request_costs_one_look_up_a_step(session):
    """The trie holds each message once, whatever the number of turns behind it."""
    messages = START
    for n in range(50):
        session.turn(request(*messages), said(call(n)))
        messages = (*messages, said(call(n)), result(n))
    states = session.forest._states
    session.turn(request(*messages), said(call(50)))
    assert session.forest._states - states == 2
