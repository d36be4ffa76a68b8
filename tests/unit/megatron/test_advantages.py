import math

from agentrl_megatron.advantages import group_advantages


def test_the_better_half_is_pushed_up_and_the_scale_is_the_groups_deviation():
    # mean 0.25, sample deviation sqrt((3 * 0.0625 + 0.5625) / 3) = 0.5
    advantages = group_advantages([1.0, 0.0, 0.0, 0.0], by_std=True)
    assert advantages is not None
    assert math.isclose(advantages[0], 1.5, rel_tol=1e-5)
    assert math.isclose(advantages[1], -0.5, rel_tol=1e-5)


def test_without_the_deviation_only_the_mean_is_taken_off():
    assert group_advantages([1.0, 0.0, 0.0, 0.0], by_std=False) == [0.75, -0.25, -0.25, -0.25]


def test_a_group_that_agrees_teaches_nothing():
    assert group_advantages([0.3, 0.3, 0.3], by_std=True) is None
    assert group_advantages([1.0], by_std=True) is None
    assert group_advantages([], by_std=True) is None
