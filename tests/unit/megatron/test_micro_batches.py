import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.api import Sample
from agentrl_megatron.batch import Row
from agentrl_megatron.micro_batches import plan


def row(length: int, *, advantage: float = 1.0, weight: float = 0.5) -> Row:
    """A row whose tokens are 1, 2, ...; all but the first are trained, with logprobs -1, -2, ..."""
    mask = (0,) + (1,) * (length - 1)
    logprobs = tuple(-float(i) for i in range(length))
    sample = Sample("r", 0, tuple(range(1, length + 1)), mask, logprobs, 1.0, 1.0)
    return Row(sample, advantage, weight, length - 1)


def test_a_trained_token_is_predicted_where_the_token_before_it_stands():
    rows = [row(3, advantage=2.0), row(2, advantage=-1.0)]
    [[batch]] = plan(rows, budget=100, dp=1, uniform=False, share=False)
    assert batch.tokens.tolist() == [[1, 2], [1, 0]]
    assert not batch.branches.any()
    assert batch.rows.tolist() == [0, 0, 1]
    assert batch.columns.tolist() == [0, 1, 0]
    assert batch.labels.tolist() == [2, 3, 2]
    assert batch.logprobs.tolist() == [-1.0, -2.0, -1.0]
    assert batch.weights.tolist() == [0.5, 0.5, 0.5]
    assert batch.advantages.tolist() == [2.0, 2.0, -1.0]


def spelled(*tokens: int, trained: int) -> Row:
    """A row whose last ``trained`` tokens are trained."""
    mask = (0,) * (len(tokens) - trained) + (1,) * trained
    return Row(Sample("r", 0, tokens, mask, (-1.0,) * len(tokens), 1.0, 1.0), 1.0, 1.0, trained)


def test_rows_that_begin_alike_share_a_line():
    rows = [spelled(1, 2, 3, 4, 5, trained=2), spelled(1, 2, 3, 7, 8, 9, trained=3), spelled(1, 2, 3, 4, 6, trained=2)]
    [[batch]] = plan(rows, budget=100, dp=1, uniform=False)
    assert batch.tokens.tolist() == [[1, 2, 3, 4, 4, 7, 8]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 3, 3, 4]]
    assert batch.branches.tolist() == [[0, 0, 0, 1, 2, 3, 3]]
    predicted = sorted(zip(batch.columns.tolist(), batch.labels.tolist(), strict=True))
    assert predicted == [(2, 4), (2, 4), (2, 7), (3, 5), (4, 6), (5, 8), (6, 9)]


def test_a_line_stays_within_the_budget():
    rows = [spelled(1, 2, 3, 10 + i, 20 + i, trained=2) for i in range(10)]
    [batches] = plan(rows, budget=6, dp=1, uniform=False)
    assert all(batch.tokens.size <= 6 for batch in batches)
    assert sum(int((batch.weights > 0).sum()) for batch in batches) == 20


words = st.lists(st.integers(1, 3), min_size=2, max_size=8).map(tuple)


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(words, min_size=1, max_size=8), budget=st.integers(1, 40))
def test_every_token_sees_in_its_line_exactly_what_stood_before_it_in_its_row(rows, budget):
    made = [spelled(*tokens, trained=len(tokens) - 1) for tokens in rows]
    found = []
    for batch in (b for part in plan(made, budget=budget, dp=1, uniform=False) for b in part):
        for i, column, label in zip(batch.rows, batch.columns, batch.labels, strict=True):
            own = batch.branches[i, column]
            visible = [c for c in range(column + 1) if batch.branches[i, c] in (0, own)]
            assert batch.positions[i, visible].tolist() == list(range(len(visible)))
            found.append((*batch.tokens[i, visible].tolist(), int(label)))
    assert sorted(found) == sorted(tokens[: n + 1] for tokens in rows for n in range(1, len(tokens)))


lengths = st.lists(st.integers(2, 40), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(lengths=lengths, budget=st.integers(2, 120), dp=st.integers(1, 4), uniform=st.booleans(), share=st.booleans())
def test_nothing_is_lost_ranks_are_even_and_the_budget_holds(lengths, budget, dp, uniform, share):
    parts = plan([row(n) for n in lengths], budget=budget, dp=dp, uniform=uniform, share=share)
    batches = [batch for part in parts for batch in part]
    assert len(parts) == dp
    assert len({len(part) for part in parts}) == 1
    trained = [int(n) for b in batches for n in np.bincount(b.rows[b.weights > 0]) if n]
    assert sum(trained) == sum(n - 1 for n in lengths)
    assert share or sorted(trained) == sorted(n - 1 for n in lengths)
    for batch in batches:
        assert batch.tokens.size <= budget or batch.tokens.shape[0] == 1
    if uniform:
        assert len({batch.tokens.shape for batch in batches}) == 1


def test_a_rank_without_rows_gets_a_batch_that_trains_nothing():
    [[full], [empty]] = plan([row(5)], budget=100, dp=2, uniform=False)
    assert full.weights.sum() > 0
    assert empty.weights.tolist() == [0.0]
    assert empty.tokens.shape == (1, 1)
