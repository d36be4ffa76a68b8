import json

import pytest

from agentrl.api import TrainerError
from agentrl_megatron.fit import check_model
from agentrl_megatron.job import Layout

CONFIG = {
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
}


def check(folder, *, tp=1, pp=1, **changes):
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    check_model(folder, Layout(tp=tp, pp=pp, dp=7))


def test_a_split_that_comes_out_even_is_fine(tmp_path):
    check(tmp_path, tp=3, pp=5, rope_parameters={"rope_type": "default", "rope_theta": 1e5})


def test_everything_that_does_not_come_out_even_is_named_at_once(tmp_path):
    with pytest.raises(TrainerError) as caught:
        check(tmp_path, tp=2, pp=4)
    for part in ("num_attention_heads of 9", "num_key_value_heads of 3", "AGENTRL_PP=4 does not divide its 30 layers"):
        assert part in str(caught.value)
    assert "vocab_size" not in str(caught.value)


@pytest.mark.parametrize("rope", [{"rope_parameters": {"rope_type": "yarn"}}, {"rope_scaling": {"type": "linear"}}])
def test_positions_that_would_be_computed_otherwise_are_refused(tmp_path, rope):
    with pytest.raises(TrainerError, match="only 'default' is known"):
        check(tmp_path, **rope)


def test_a_model_that_is_not_there_is_noticed(tmp_path):
    with pytest.raises(TrainerError, match="no HF model in"):
        check_model(tmp_path / "nowhere", Layout(1, 1, 1))
