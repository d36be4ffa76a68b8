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


def test_each_trained_token_is_predicted_one_column_before_it_stands():
    [[batch]] = plan([row(3, advantage=2.0), row(2, advantage=-1.0)], budget=100, dp=1, uniform=False)
    assert batch.tokens.tolist() == [[1, 2, 3], [1, 2, 0]]
    assert batch.rows.tolist() == [0, 0, 1]
    assert batch.columns.tolist() == [0, 1, 0]
    assert batch.logprobs.tolist() == [-1.0, -2.0, -1.0]
    assert batch.weights.tolist() == [0.5, 0.5, 0.5]
    assert batch.advantages.tolist() == [2.0, 2.0, -1.0]


lengths = st.lists(st.integers(2, 40), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(lengths=lengths, budget=st.integers(2, 120), dp=st.integers(1, 4), uniform=st.booleans())
def test_nothing_is_lost_ranks_are_even_and_the_budget_holds(lengths, budget, dp, uniform):
    parts = plan([row(n) for n in lengths], budget=budget, dp=dp, uniform=uniform)
    batches = [batch for part in parts for batch in part]
    assert len(parts) == dp
    assert len({len(part) for part in parts}) == 1
    trained = [int(n) for b in batches for n in np.bincount(b.rows[b.weights > 0]) if n]
    assert sorted(trained) == sorted(n - 1 for n in lengths)
    for batch in batches:
        assert batch.tokens.size <= budget or batch.tokens.shape[0] == 1
    if uniform:
        assert len({batch.tokens.shape for batch in batches}) == 1


def test_a_rank_without_rows_gets_a_batch_that_trains_nothing():
    [[full], [empty]] = plan([row(5)], budget=100, dp=2, uniform=False)
    assert full.weights.sum() > 0
    assert empty.weights.tolist() == [0.0]
    assert empty.tokens.shape == (1, 2)
