import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from helpers import tree_equal
from nnx_ppo_fn._counter import Counter
from nnx_ppo_fn._moments import Moments


merge = jax.jit(Moments.merge)
random = np.random.default_rng(20261129)


def merged(*batches):
    moments = Moments.zero(batches[0].shape[1:])
    for batch in batches:
        moments = merge(moments, jnp.asarray(batch, jnp.float32))
    return moments


def exact_mean(moments):
    return np.float64(moments.mean) + np.float64(moments.mean_residual)


def assert_matches_numpy(moments, *batches, tolerance=1e-5):
    """Errors in units of the standard deviation, against float64."""
    samples = np.concatenate([np.float32(batch) for batch in batches])
    samples = np.where(np.isfinite(samples), samples, np.nan).astype(np.float64)
    std = np.nanstd(samples, axis=0)
    assert np.all(
        abs(exact_mean(moments) - np.nanmean(samples, axis=0)) <= tolerance * std
    )
    np.testing.assert_allclose(moments.deviation, std, rtol=tolerance)
    counts = np.float64(moments.count.as_float())
    np.testing.assert_array_equal(counts, np.sum(~np.isnan(samples), axis=0))


@pytest.mark.parametrize(
    "batches",
    [
        [random.normal(size=(64, 2)) for _ in range(5)],
        [1e6 + random.normal(size=(64, 2)) for _ in range(20)],
        [random.normal(size=(64, 2)) + 1000 * i for i in range(5)],
        [1e-5 * random.normal(size=(64, 2)) for _ in range(5)],
        [np.zeros((64, 2))] * 9 + [random.normal(size=(64, 2))],
        [random.standard_cauchy(size=(64, 2)) for _ in range(5)],
        [random.integers(0, 2, size=(64, 2)) for _ in range(5)],
        [np.array([[3e38, 1e30], [-3e38, -1e30]]), np.full((2, 2), 1e30)],
    ],
    ids="normal offset drift small late heavy binary huge".split(),
)
def test_moments_agree_with_float64(batches):
    assert_matches_numpy(merged(*batches), *batches)


def test_one_large_batch_far_from_zero():
    batch = 1e6 + random.normal(size=(2**16, 1))
    assert_matches_numpy(merged(batch), batch)


def test_many_small_steps_far_from_zero_are_not_lost():
    # Each batch moves the mean by less than half of the distance between two
    # float32 numbers near 1e6, which is 1/16.
    batches = [np.full((8, 1), 1e6)] * 20 + [np.full((1, 1), 1e6 + 0.5)] * 60
    moments = merged(*batches)
    np.testing.assert_allclose(exact_mean(moments), 1e6 + 0.5 * 60 / 220, atol=1e-4)


@pytest.mark.parametrize("constant", [0.0, 0.1, -7e7, 3e38])
def test_a_constant_has_no_deviation(constant):
    moments = merged(*[np.full((100, 1), constant)] * 3)
    np.testing.assert_array_equal(moments.deviation, [0])
    np.testing.assert_allclose(exact_mean(moments), [constant], rtol=1e-7)


def test_what_is_not_finite_is_not_a_sample_of_its_feature_only():
    batch = np.array([[1, np.nan, np.nan], [3, np.inf, 5], [-np.inf, np.nan, 7]])
    moments = merged(batch)
    np.testing.assert_array_equal(moments.count.as_float(), [2, 0, 2])
    np.testing.assert_allclose(moments.mean, [2, 0, 6])
    np.testing.assert_allclose(moments.deviation, [1, 0, 1])


def test_no_samples_change_nothing():
    moments = merged(1e6 + random.normal(size=(5, 2)))
    assert tree_equal(merge(moments, jnp.zeros((0, 2))), moments)
    assert tree_equal(merge(moments, jnp.full((3, 2), jnp.nan)), moments)


def test_counts_are_exact_past_two_to_the_31():
    start = merged(random.normal(size=(7, 1)))
    full = Moments(
        jax.tree.map(lambda half: half[None], Counter.of(2**32 - 2)),
        start.mean,
        start.mean_residual,
        start.deviation,
    )
    later = merge(full, jnp.ones((5, 1)))
    assert int(jax.tree.map(lambda half: half[0], later.count)) == 2**32 + 3
    # A weight of 5 in 2**32 moves nothing that float32 can show.
    np.testing.assert_allclose(later.deviation, full.deviation, rtol=1e-6)


numbers = st.floats(-1e4, 1e4, width=32) | st.sampled_from([np.nan, np.inf, 1e30])


@settings(max_examples=25, deadline=None)
@given(arrays(np.float32, (8, 2), elements=numbers), st.integers(0, 8))
def test_merging_two_halves_is_merging_once(samples, cut):
    first = np.arange(8)[:, None] < cut
    halves = merged(*(np.where(half, samples, np.nan) for half in (first, ~first)))
    whole = merged(samples)
    scale = np.maximum(np.abs(whole.mean), whole.deviation) + 1e-30
    np.testing.assert_array_equal(halves.count.low, whole.count.low)
    assert np.all(abs(exact_mean(halves) - exact_mean(whole)) <= 1e-6 * scale)
    assert np.all(abs(halves.deviation - whole.deviation) <= 1e-6 * scale)
