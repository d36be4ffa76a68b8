"""The prefix cache never lies about what a slot holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrl_engine_local.slots import Slot, Slots


class Memory:
    """What the model would hold: one list of tokens a slot, each marked with the weights that computed it."""

    def __init__(self, count: int) -> None:
        self.rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self.weights = 0

    def copy(self, source: int, target: int, length: int) -> None:
        self.rows[target][:length] = self.rows[source][:length]

    def compute(self, slot: Slot, ids: list[int]) -> None:
        start = len(slot.ids)
        self.rows[slot.index][start : start + len(ids)] = [(token, self.weights) for token in ids]
        slot.ids += ids


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6)
steps = st.one_of(st.tuples(st.just("run"), prompts), st.just(("end", [])), st.just(("flush", [])))


@given(st.lists(steps, max_size=40))
def test_a_new_prompt_only_gets_its_own_beginning_under_the_present_weights(
    actions: list[tuple[str, list[int]]],
) -> None:
    memory = Memory(3)
    slots = Slots(3, memory.copy)
    running: list[Slot] = []
    for action, prompt in actions:
        if action == "flush":
            memory.weights += 1
            slots.flush()
        elif action == "end" and running:
            slots.give_back(running.pop(0))
        elif action == "run":
            slot = slots.take(prompt)
            assert (slot is None) == (len(running) == 3)
            if slot is None:
                continue
            assert slot not in running
            assert len(slot.ids) < len(prompt)
            assert memory.rows[slot.index][: len(slot.ids)] == [(t, memory.weights) for t in prompt[: len(slot.ids)]]
            memory.compute(slot, prompt[len(slot.ids) :])
            running.append(slot)


def test_a_longer_conversation_continues_in_place() -> None:
    memory = Memory(2)
    slots = Slots(2, memory.copy)
    first = slots.take([1, 2, 3])
    memory.compute(first, [1, 2, 3])
    slots.give_back(first)
    assert slots.take([1, 2, 3, 4, 5]) is first
    assert first.ids == [1, 2, 3]


def test_the_rollouts_of_a_group_share_one_prompt() -> None:
    memory = Memory(3)
    slots = Slots(3, memory.copy)
    first = slots.take([1, 2, 3, 4])
    memory.compute(first, [1, 2, 3])
    second = slots.take([1, 2, 3, 4])
    assert second is not first
    assert second.ids == [1, 2, 3]


def test_another_conversation_with_the_same_beginning_leaves_the_first_one_known() -> None:
    memory = Memory(2)
    slots = Slots(2, memory.copy)
    first = slots.take([1, 2, 3, 4])
    memory.compute(first, [1, 2, 3, 4])
    slots.give_back(first)
    other = slots.take([1, 2, 9, 9])
    assert (other is not first, other.ids) == (True, [1, 2])
    assert slots.take([1, 2, 3, 4, 5]).ids == [1, 2, 3, 4]


def test_the_slot_unused_for_longest_is_given_up() -> None:
    memory = Memory(2)
    slots = Slots(2, memory.copy)
    for prompt in ([1, 1], [2, 2]):
        slot = slots.take(prompt)
        memory.compute(slot, prompt)
        slots.give_back(slot)
    memory.compute(slots.take([3, 3]), [3, 3])
    assert slots.take([2, 2, 2]).ids == [2, 2]
