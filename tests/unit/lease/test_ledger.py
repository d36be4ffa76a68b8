from __future__ import annotations

import pytest

from agentrl.errors import SandboxTransient
from agentrl.lease import Ledger


def test_it_survives_torn_lines_and_several_writers(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    one, other = Ledger(path, "r"), Ledger(path, "r")
    one.created("a", rollout_id="1")
    with path.open("ab") as file:
        file.write(b'{"event": "created", "id": "to')
    other.created("b", rollout_id="2")
    with path.open("ab") as file:
        file.write(b'\n[]\n7\n{"neither": 1}\n\xff\xfe\n')
    one.intended("k1", rollout_id="3")
    one.intended("k2", rollout_id="4")
    one.failed("k1")
    one.gone("b")
    one.closed("a")
    entries = Ledger(path).read()
    assert list(entries.open) == ["b"]
    assert [born.rollout_id for born in entries.intended.values()] == ["4"]
    assert entries.runs == {"r"}


def test_it_knows_whose_machines_they_are(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path, "r", "e2b").created("a", rollout_id="1")
    local = Ledger(path, "r", "local")
    local.created("b", rollout_id="1")
    assert local.open_ids() == ("b",)
    assert local.strangers() == {"e2b": 1}
    assert Ledger(path).open_ids() == ("a", "b")


def test_whoever_writes_is_seen_to_be_alive_and_does_not_come_back_while_it_is_cleaned(tmp_path):
    path = tmp_path / "ledger.jsonl"
    run, cleaner = Ledger(path, "r"), Ledger(path, "r")
    run.created("a", rollout_id="1")
    with cleaner.sole() as sole:
        assert not sole
    run.close()
    with cleaner.sole() as sole:
        assert sole
        cleaner.closed("a")
        with pytest.raises(SandboxTransient, match="agentrl gc"):
            run.intended("k", rollout_id="1")
    run.intended("k", rollout_id="1")
    assert run.open_ids() == ()
    run.close()
