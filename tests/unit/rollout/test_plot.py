"""The picture of a run."""

from agentrl.rollout.plot import plot_reward, smooth


def test_smoothing_is_a_trailing_mean_of_the_same_length():
    assert smooth([1.0, 3.0, 5.0], window=2) == [1.0, 2.0, 4.0]
    assert smooth([]) == []


def test_a_png_is_written_even_with_gaps(tmp_path):
    rows = [
        {"iteration": 0, "reward": 0.1, "reward_by_level": {"level-1": 0.2, "level-2": 0.0}},
        {"iteration": 1},
        {"iteration": 2, "reward": 0.3, "reward_by_level": {"level-1": 0.6, "level-2": 0.0}},
    ]
    plot_reward(rows, tmp_path / "reward.png", title="run")
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["reward.png"]
