import json

import pytest

from agentrl.api import TrainerError
from agentrl_megatron import checkpoints
from agentrl_megatron.job import Layout

LAYOUT = Layout(tp=1, pp=1, dp=1)


def write(root, iteration, layout=LAYOUT, text="new"):
    target = checkpoints.path(root, iteration)
    folder = checkpoints.begin(root, target.name)
    (folder / "shard").write_text(text)
    checkpoints.describe(folder, iteration, layout)
    checkpoints.finish(folder, target)


def test_only_what_is_complete_counts(tmp_path):
    assert checkpoints.iterations(tmp_path / "nothing") == []
    write(tmp_path, 5)
    checkpoints.begin(tmp_path, "iter_000006")
    assert checkpoints.iterations(tmp_path) == [5]


def test_what_a_dead_run_left_half_written_does_not_get_into_the_next(tmp_path):
    (checkpoints.begin(tmp_path, "iter_000005") / "stale").write_text("old")
    write(tmp_path, 5)
    assert sorted(path.name for path in (tmp_path / "iter_000005").iterdir()) == ["meta.json", "shard"]


def test_a_checkpoint_written_again_replaces_the_first(tmp_path):
    write(tmp_path, 5, text="old")
    write(tmp_path, 5, text="new")
    assert (tmp_path / "iter_000005" / "shard").read_text() == "new"


def test_the_newest_are_kept(tmp_path):
    for iteration in (2, 4, 6, 1000000):
        write(tmp_path, iteration)
    checkpoints.prune(tmp_path, 2)
    assert checkpoints.iterations(tmp_path) == [6, 1000000]


def test_replicas_may_be_more_or_fewer_but_the_model_must_be_split_as_before(tmp_path):
    write(tmp_path, 5, Layout(tp=2, pp=1, dp=1))
    assert checkpoints.find(tmp_path, 5, Layout(tp=2, pp=1, dp=4)) == tmp_path / "iter_000005"
    with pytest.raises(TrainerError, match="AGENTRL_TP"):
        checkpoints.find(tmp_path, 5, LAYOUT)


def test_the_meta_file_says_what_the_folder_is(tmp_path):
    write(tmp_path, 5, Layout(tp=2, pp=3, dp=4))
    meta = json.loads((tmp_path / "iter_000005" / "meta.json").read_text())
    assert meta == {"iteration": 5, "layout": {"tp": 2, "pp": 3}}
