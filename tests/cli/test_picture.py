"""The picture shows nothing that is not there."""

import numpy as np
from matplotlib.figure import Figure

from nnx_ppo_fn.cli.picture import _draw_returns


def band_of(lines):
    panel = Figure().subplots()
    _draw_returns(panel, lines)
    (band,) = panel.collections
    return band.get_paths()[0].vertices[:, 1]


def evaluation(step, mean, std, **more):
    values = {"eval/episode_reward/mean": mean, "eval/episode_reward/std": std}
    return {"step": step, **values, **more}


def test_the_band_ends_where_no_mean_has_been():
    training = {"episode/return/mean": 9.0}
    heights = band_of(
        [evaluation(0, 20.0, 30.0, **training), evaluation(100, 480.0, 58.0)]
        + [evaluation(200, 500.0, 0.0)]
    )
    # 480 + 58 would be more than cart-pole has to give, and 20 - 30 less than 0.
    assert (heights.min(), heights.max()) == (9.0, 500.0)


def test_the_band_is_one_standard_deviation():
    heights = band_of(
        [evaluation(0, 0.0, 0.0), evaluation(1, 5.0, 2.0), evaluation(2, 10.0, 0.0)]
    )
    np.testing.assert_array_equal(np.unique(heights), [0.0, 3.0, 7.0, 10.0])
