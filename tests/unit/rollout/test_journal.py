"""The journal gives back what was written, small."""

import orjson
from rollouts import two_turns

from agentrl.outcomes import ExitStatus
from agentrl.rollout.journal import decode, encode, mask_spans, read_journal
from agentrl.rollout.lines import Lines


def through_json(rollout):
    return decode(orjson.loads(orjson.dumps(encode(rollout))))


def test_a_rollout_comes_back_equal():
    assert through_json(two_turns()) == two_turns()


def test_an_aborted_rollout_comes_back_without_reward():
    rollout = two_turns(reward=None, status=ExitStatus.SANDBOX_LOST)
    assert through_json(rollout) == rollout
    assert through_json(rollout).reward is None


def test_a_call_that_extends_the_one_before_is_stored_as_its_new_ids():
    row = encode(two_turns())
    assert row["calls"][1]["shared"] == 5
    assert row["calls"][1]["input_ids"] == (6,)


def test_log_probabilities_are_stored_for_trained_ids_only():
    assert len(encode(two_turns())["samples"][0]["logprobs"]) == 5


def test_mask_spans():
    assert mask_spans((0, 1, 1, 0, 1)) == [(1, 3), (4, 5)]
    assert mask_spans(()) == []


def test_the_file_keeps_the_order_of_finishing(tmp_path):
    lines = Lines(tmp_path / "journal.jsonl")
    for name in ("i0-g0-r1", "i0-g0-r0"):
        lines.append(encode(two_turns(name)))
    lines.close()
    assert [rollout.id for rollout in read_journal(lines.path)] == ["i0-g0-r1", "i0-g0-r0"]
