"""The log of engine calls: small inside, whole outside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrl.gateway.evidence import CallLog
from agentrl.tokens.ids import TokenIds
from agentrl.types import Generation

IDS = st.lists(st.integers(0, 3), max_size=12)


@given(st.lists(st.tuples(IDS, IDS), max_size=15))
def test_it_gives_back_exactly_what_was_appended(exchanges):
    log = CallLog()
    for number, (prompt, sampled) in enumerate(exchanges):
        log.append(TokenIds.of(prompt), generation(str(number), sampled))
    calls = log.materialise()
    assert [(list(c.input_ids), list(c.output_ids)) for c in calls] == exchanges
    assert [c.request_id for c in calls] == [str(n) for n in range(len(exchanges))]


def test_a_growing_conversation_costs_its_new_ids_only():
    log, prompt = CallLog(), list(range(1000))
    for number in range(50):
        log.append(TokenIds.of(prompt), generation(str(number), [7] * 10))
        prompt = [*prompt, *[7] * 10, *[8] * 10]
    assert sum(len(entry.rest) for entry in log._entries) == 1000 + 49 * 10


def generation(request_id, ids):
    return Generation(request_id, tuple(ids), tuple(-0.5 for _ in ids), "stop", "v2", "v1")
