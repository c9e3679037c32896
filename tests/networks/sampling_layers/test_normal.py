import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate, stats

from nnx_ppo_fn._keys import advance_keys, normals
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks._trainable import NonTrainable, partition_trainable
from nnx_ppo_fn.networks.sampling_layers import (
    NormalSampler,
    NormalTanhSampler,
    tanh_normal_log_density,
)


log_density = jax.jit(tanh_normal_log_density)
density_gradient = jax.jit(
    jax.grad(lambda *args: jnp.sum(tanh_normal_log_density(*args)), argnums=(0, 1, 2))
)


def reference_log_density(raw, mean, std):
    """scipy in float64, with the change of variables d tanh(z) / dz = sech(z)**2."""
    raw, mean, std = (np.asarray(v, np.float64) for v in (raw, mean, std))
    log_sech = np.log(2) - np.abs(raw) - np.log1p(np.exp(-2 * np.abs(raw)))
    return np.sum(stats.norm.logpdf(raw, mean, std) - 2 * log_sech, axis=-1)


@settings(max_examples=50, deadline=None)
@given(st.floats(-30, 30), st.floats(-5, 5), st.floats(0.0625, 4))
def test_the_density_of_a_squashed_normal(raw, mean, std):
    arguments = [np.full((1, 1), v, np.float32) for v in (raw, mean, std)]
    np.testing.assert_allclose(
        log_density(*map(jnp.asarray, arguments)),
        reference_log_density(*arguments),
        rtol=2e-5,
        atol=1e-5,
    )


def test_the_density_integrates_to_one_over_actions():
    def density(action):
        raw = jnp.full((1, 1), np.arctanh(action), jnp.float32)
        return np.exp(float(log_density(raw, raw * 0 + 0.4, raw * 0 + 0.7)[0]))

    actions = np.linspace(-1, 1, 801)[1:-1]
    total = integrate.trapezoid([density(action) for action in actions], actions)
    assert abs(total - 1) < 1e-3


@pytest.mark.parametrize("raw, expected", [(10, -32.3052), (50, -1152.3052)])
def test_saturated_actions_have_finite_likelihoods(raw, expected):
    # A standard normal at z has -z**2 / 2 - log(2 pi) / 2, and for large z the slope
    # takes off 2 log 2 - 2 z: at 10, -50 - 0.9189 + 18.6137.
    for sign in (-1, 1):
        x = jnp.full((1, 1), sign * raw, jnp.float32)
        got = log_density(x, x * 0, x * 0 + 1)
        np.testing.assert_allclose(got, [expected], atol=1e-4)
        for gradient in density_gradient(x, x * 0, x * 0 + 1):
            assert np.all(np.isfinite(gradient))


def test_gradients_are_finite_very_far_out():
    x = jnp.array([[1e4], [-1e4]])
    gradients = density_gradient(x, x * 0, x * 0 + 1)
    np.testing.assert_allclose(gradients[0], [[-1e4 + 2], [1e4 - 2]], rtol=1e-6)
    np.testing.assert_allclose(gradients[1], [[1e4], [-1e4]], rtol=1e-6)
    np.testing.assert_allclose(gradients[2], [[1e8 - 1]] * 2, rtol=1e-6)


def parameters(getkey, batch=5, size=2):
    return jr.normal(getkey(), (batch, 2 * size)), jr.split(getkey(), batch)


def test_a_rollout_draws_from_the_advanced_chain(getkey):
    x, keys = parameters(getkey)
    sampler = NormalTanhSampler(0.3, min_std=0.05, std_scale=1.5)
    result = sampler(keys, x)
    std = (np.log1p(np.exp(np.float64(x[:, 2:]))) + 0.05) * 1.5
    raw = np.float64(x[:, :2]) + std * normals(advance_keys(keys)[1], 2)
    expected = reference_log_density(raw, x[:, :2], std)
    np.testing.assert_allclose(result.rollout_extras, raw, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.output.action, np.tanh(raw), rtol=1e-5)
    np.testing.assert_allclose(result.output.log_likelihood, expected, rtol=1e-4)
    np.testing.assert_allclose(result.regularization_loss, 0.3 * expected, rtol=1e-4)
    np.testing.assert_allclose(result.metrics["sigma"], np.mean(std, -1), rtol=1e-5)


def test_a_replay_returns_the_recorded_action_and_its_new_likelihood(getkey):
    x, keys = parameters(getkey)
    sampler = NormalTanhSampler(0.3)
    recorded = sampler(keys, x)
    replayed = sampler(keys, x + 0.1, recorded.rollout_extras)
    assert replayed.rollout_extras is recorded.rollout_extras
    np.testing.assert_array_equal(replayed.output.action, recorded.output.action)
    std = jax.nn.softplus(x[:, 2:] + 0.1) + 1e-3
    np.testing.assert_allclose(
        replayed.output.log_likelihood,
        reference_log_density(recorded.rollout_extras, x[:, :2] + 0.1, std),
        rtol=1e-4,
    )
    # The entropy's sample is the same noise under the new weights.
    sample = x[:, :2] + 0.1 + std * normals(advance_keys(keys)[1], 2)
    np.testing.assert_allclose(
        replayed.regularization_loss,
        0.3 * reference_log_density(sample, x[:, :2] + 0.1, std),
        rtol=1e-4,
    )


def test_the_log_likelihood_has_the_score_as_its_gradient(getkey):
    """No gradient flows through the action, in the rollout and in the replay alike."""
    x, keys = parameters(getkey, batch=1, size=1)
    sampler = NormalTanhSampler(0.0, min_std=1e-6)
    raw = sampler(keys, x).rollout_extras

    @jax.jit
    @jax.grad
    def gradient_of_likelihood(x, extras):
        return jnp.sum(sampler(keys, x, extras).output.log_likelihood)

    std = np.log1p(np.exp(np.float64(x[:, 1:])))
    score = (raw - x[:, :1]) / std**2
    for extras in (None, raw):
        gradient = gradient_of_likelihood(x, extras)
        np.testing.assert_allclose(gradient[:, :1], score, rtol=1e-4)


@pytest.mark.parametrize("mean, raw_std", [(0.0, 0.5), (1.5, -1.0)])
def test_the_regularisation_estimates_the_negative_entropy(mean, raw_std):
    batch = 20_000
    x = jnp.tile(jnp.array([[mean, raw_std]], jnp.float32), (batch, 1))
    sampler = NormalTanhSampler(2.0, min_std=1e-6)
    losses = jax.jit(lambda keys: sampler(keys, x).regularization_loss)(
        jr.split(jr.key(1), batch)
    )
    std = np.log1p(np.exp(raw_std))
    z = np.linspace(mean - 12 * std, mean + 12 * std, 20_001)[:, None]
    log_likelihood = reference_log_density(z, mean, std)
    expected = integrate.trapezoid(
        stats.norm.pdf(z[:, 0], mean, std) * log_likelihood, z[:, 0]
    )
    error = np.std(losses) / batch**0.5
    assert abs(np.mean(np.float64(losses)) - 2 * expected) < 4 * error


def test_inference_gives_the_median(getkey):
    x, keys = parameters(getkey)
    result = eqx.nn.inference_mode(NormalTanhSampler(0.1))(keys, x)
    np.testing.assert_array_equal(result.output.action, jnp.tanh(x[:, :2]))


def test_the_density_is_computed_in_float32(getkey):
    x, keys = parameters(getkey)
    output = NormalTanhSampler(0.1)(keys, x.astype(jnp.bfloat16)).output
    assert output.log_likelihood.dtype == output.action.dtype == jnp.float32


def test_an_odd_number_of_parameters_is_explained():
    with pytest.raises(CompositionError, match=r"\[B, 2 \* action_size\].*\[2, 3\]"):
        NormalTanhSampler(0.0)(jr.split(jr.key(0), 2), jnp.ones((2, 3)))


# Without squashing


def test_clipping_is_outside_the_likelihood(getkey):
    x, keys = parameters(getkey, batch=64)
    free = NormalSampler(0.3)(keys, x)
    low, high = np.float32([-0.5, -0.1]), np.float32([0.25, 0.1])
    for bounds in [(low, high), (list(map(float, low)), jnp.asarray(high))]:
        clipped = NormalSampler(0.3, bounds=bounds)(keys, x)
        action, raw = clipped.output.action, clipped.rollout_extras
        np.testing.assert_array_equal(raw, free.output.action)
        np.testing.assert_array_equal(action, np.clip(raw, low, high))
        assert 0.1 < np.mean(action != raw) < 0.9
        np.testing.assert_array_equal(
            clipped.output.log_likelihood, free.output.log_likelihood
        )
        np.testing.assert_array_equal(
            clipped.regularization_loss, free.regularization_loss
        )


def test_one_pair_of_numbers_bounds_every_component(getkey):
    x, keys = parameters(getkey, batch=64)
    action = NormalSampler(0.3, bounds=(-0.25, 0.5))(keys, x).output.action
    assert np.min(action) == -0.25 and np.max(action) == 0.5


def test_inference_gives_the_mean_inside_the_bounds():
    sampler = eqx.nn.inference_mode(NormalSampler(0.1, bounds=(-1, 1)))
    x = jnp.array([[0.5, -3.0, 0.0, 0.0]])
    result = sampler(jr.split(jr.key(0), 1), x)
    np.testing.assert_array_equal(result.output.action, [[0.5, -1.0]])
    np.testing.assert_array_equal(result.rollout_extras, [[0.5, -3.0]])


def test_bounds_do_not_train():
    sampler = NormalSampler(0.1, bounds=(jnp.zeros(2), [1.0, 2.0]))
    assert jax.tree.leaves(partition_trainable(sampler)[0]) == []


def test_bounds_of_another_size_are_explained(getkey):
    x, keys = parameters(getkey)
    with pytest.raises(CompositionError, match=r"numbers or \[2\].*got \[3\]"):
        NormalSampler(0.1, bounds=(-jnp.ones(3), jnp.ones(3)))(keys, x)


# Standard deviations that do not depend on the state


@pytest.mark.parametrize("kind", [NormalSampler, NormalTanhSampler])
def test_a_standard_deviation_by_itself(kind, getkey):
    log_std = jnp.array([0.5, -1.0])
    sampler = kind(0.3, min_std=0.05, std_scale=1.5, log_std=log_std)
    mean, keys = jr.normal(getkey(), (5, 2)), jr.split(getkey(), 5)
    result = sampler(keys, mean)
    std = (np.exp(np.float64(log_std)) + 0.05) * 1.5
    noise = np.asarray(normals(advance_keys(keys)[1], 2))
    raw = np.asarray(mean) + std * noise
    np.testing.assert_allclose(result.rollout_extras, raw, rtol=1e-5)
    np.testing.assert_allclose(result.metrics["sigma"], [np.mean(std)] * 5, rtol=1e-5)


@pytest.mark.parametrize("kind", [NormalSampler, NormalTanhSampler])
def test_it_trains_along_its_score(kind, getkey):
    """With s = (exp(l) + m) c, d log p / dl = (z**2 - 1) / s * c exp(l)."""
    sampler = kind(0.0, min_std=0.05, std_scale=1.5, log_std=jnp.array([0.5, -1.0]))
    mean, keys = jr.normal(getkey(), (5, 2)), jr.split(getkey(), 5)
    raw = sampler(keys, mean).rollout_extras

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(parameters, rest):
        network = eqx.combine(parameters, rest)
        return jnp.sum(network(keys, mean, raw).output.log_likelihood)

    slope = gradient(*partition_trainable(sampler)).log_std
    exp = np.exp(np.float64([0.5, -1.0]))
    std = (exp + 0.05) * 1.5
    z = np.float64(raw - mean) / std
    np.testing.assert_allclose(
        slope, np.sum((z**2 - 1) / std * 1.5 * exp, axis=0), rtol=1e-4
    )


def test_it_may_be_held_fixed(getkey):
    log_std = jnp.array([0.5, -1.0])
    fixed, free = (
        NormalTanhSampler(0.1, log_std=value)
        for value in (NonTrainable(log_std), log_std)
    )
    assert jax.tree.leaves(partition_trainable(fixed)[0]) == []
    assert len(jax.tree.leaves(partition_trainable(free)[0])) == 1
    mean, keys = jr.normal(getkey(), (5, 2)), jr.split(getkey(), 5)
    np.testing.assert_array_equal(
        fixed(keys, mean).output.action, free(keys, mean).output.action
    )


def test_means_of_another_size_are_explained():
    sampler = NormalTanhSampler(0.0, log_std=jnp.zeros(2))
    with pytest.raises(CompositionError, match=r"x \[B, 2\] \(means.*got \[3, 4\]"):
        sampler(jr.split(jr.key(0), 3), jnp.ones((3, 4)))
