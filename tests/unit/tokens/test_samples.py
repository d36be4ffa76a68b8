from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agentrl.tokens.samples import chains, samples_from
from agentrl.types import Generation, Trajectory, Turn


def turn(id: str, parent: Turn | None, new: int, sampled: int, **fields) -> Turn:
    """A turn whose ids are all different, made from its name."""
    base = int(id) * 1000
    finish = fields.pop("finish", "stop")
    ids = tuple(range(base + 500, base + 500 + sampled))
    before = parent.prompt_tokens + len(parent.generation.ids) if parent else 0
    return Turn(
        id=id,
        parent_id=parent.id if parent else None,
        new_ids=tuple(range(base, base + new)),
        generation=Generation("r", ids, tuple(-i / 100 for i in range(1, sampled + 1)), finish, f"v{id}"),
        prompt_tokens=before + new,
        **fields,
    )


def one_chain() -> tuple[Turn, ...]:
    first = turn("1", None, 3, 2)
    second = turn("2", first, 2, 3)
    return first, second


def test_one_chain_is_one_sample():
    first, second = one_chain()
    (sample,) = samples_from(Trajectory((first, second)), rollout_id="r1", reward=0.5)
    assert sample.tokens == (*first.new_ids, *first.generation.ids, *second.new_ids, *second.generation.ids)
    assert sample.loss_mask == (0, 0, 0, 1, 1, 0, 0, 1, 1, 1)
    assert sample.logprobs == (0, 0, 0, -0.01, -0.02, 0, 0, -0.01, -0.02, -0.03)
    assert (sample.loss_weight, sample.reward, sample.rollout_id, sample.index) == (1.0, 0.5, "r1", 0)
    assert (sample.turn_ids, sample.weight_versions, sample.truncated) == (("1", "2"), ("v1", "v2"), False)


def test_three_chains_share_their_trunk_and_the_weight():
    trunk = turn("1", None, 3, 4)
    leaves = [
        turn(str(n), trunk, 1, 2, fork_reason=reason) for n, reason in ((2, ""), (3, "parallel"), (4, "parallel"))
    ]
    trajectory = Trajectory((trunk, *leaves))
    samples = samples_from(trajectory, rollout_id="r", reward=1.0)
    assert [s.turn_ids for s in samples] == [("1", "2"), ("3",), ("4",)]
    assert [sum(s.loss_mask) for s in samples] == [6, 2, 2]
    assert [s.loss_weight for s in samples] == [0.6, 0.2, 0.2]
    assert all(s.tokens[:7] == (*trunk.new_ids, *trunk.generation.ids) for s in samples)
    assert samples[1].logprobs[3:7] == (0, 0, 0, 0)


def test_what_does_not_fit_is_cut_at_a_turn():
    first, second = one_chain()
    trajectory = Trajectory((first, second))
    (exact,) = samples_from(trajectory, rollout_id="r", reward=1.0, max_tokens=10)
    assert (exact.turn_ids, exact.truncated) == (("1", "2"), False)
    (cut,) = samples_from(trajectory, rollout_id="r", reward=1.0, max_tokens=9)
    assert (cut.turn_ids, cut.truncated, len(cut.tokens), cut.loss_weight) == (("1",), True, 5, 1.0)
    assert samples_from(trajectory, rollout_id="r", reward=1.0, max_tokens=4) == ()


def test_turns_kept_out_of_training_are_context():
    first = turn("1", None, 3, 2, trainable=False, excluded="foreign_client")
    second = turn("2", first, 2, 3)
    third = turn("3", second, 1, 2, trainable=False, excluded="abort", finish="abort")
    (sample,) = samples_from(Trajectory((first, second, third)), rollout_id="r", reward=1.0)
    assert sample.loss_mask == (0, 0, 0, 0, 0, 0, 0, 1, 1, 1)
    assert sample.logprobs[3:5] == (0, 0)
    assert sample.turn_ids == ("2",)


def test_a_chain_without_anything_to_train_is_no_sample():
    first = turn("1", None, 3, 2)
    other = turn("2", None, 3, 2, trainable=False)
    samples = samples_from(Trajectory((first, other)), rollout_id="r", reward=0.0)
    assert [s.turn_ids for s in samples] == [("1",)]


def test_a_last_turn_cut_for_length_is_truncated_and_trained():
    (sample,) = samples_from(Trajectory((turn("1", None, 3, 2, finish="length"),)), rollout_id="r", reward=0.0)
    assert (sample.truncated, sum(sample.loss_mask)) == (True, 2)


def test_nothing_sampled_gives_no_sample():
    assert samples_from(Trajectory(()), rollout_id="r", reward=0.0) == ()


@st.composite
def forests(draw: st.DrawFn) -> Trajectory:
    turns: list[Turn] = []
    for n in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from([None, *turns]))
        trainable = draw(st.integers(0, 4)) > 0
        turns.append(turn(str(n), parent, draw(st.integers(0, 3)), draw(st.integers(1, 4)), trainable=trainable))
    return Trajectory(tuple(turns))


@given(trajectory=forests(), limit=st.none() | st.integers(1, 40))
def test_every_sampled_token_is_trained_in_exactly_one_sample(trajectory, limit):
    samples = samples_from(trajectory, rollout_id="r", reward=1.0, max_tokens=limit)
    trained = Counter((t, lp) for s in samples for t, m, lp in zip(s.tokens, s.loss_mask, s.logprobs, strict=True) if m)
    expected = Counter(
        pair
        for t in trajectory.turns
        if t.trainable and (limit is None or t.prompt_tokens + len(t.generation.ids) <= limit)
        for pair in zip(t.generation.ids, t.generation.logprobs, strict=True)
    )
    assert trained == expected
    assert all(lp == 0.0 for s in samples for m, lp in zip(s.loss_mask, s.logprobs, strict=True) if not m)
    assert not samples or math.isclose(sum(s.loss_weight for s in samples), 1.0)
    assert all(any(s.loss_mask) and (limit is None or len(s.tokens) <= limit) for s in samples)
    assert [s.index for s in samples] == list(range(len(samples)))


@given(trajectory=forests())
def test_every_sample_is_the_beginning_of_a_chain(trajectory):
    whole = [tuple(i for t in chain for i in (*t.new_ids, *t.generation.ids)) for chain in chains(trajectory)]
    for sample in samples_from(trajectory, rollout_id="r", reward=1.0):
        assert any(ids[: len(sample.tokens)] == sample.tokens for ids in whole)
