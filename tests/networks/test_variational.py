import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn._keys import advance_keys, normals
from nnx_ppo_fn.networks.variational import VariationalBottleneck


def kl_by_quadrature(mean, std):
    """KL(N(mean, std) || N(0, 1)), by summing over a fine grid in float64."""
    z = np.linspace(-30, 30, 200_001)
    log_q = -0.5 * ((z - mean) / std) ** 2 - np.log(std)
    log_p = -0.5 * z**2
    q = np.exp(log_q) / np.sqrt(2 * np.pi)
    return np.sum(q * (log_q - log_p)) * (z[1] - z[0])


def test_the_regularisation_is_the_weighted_kl_divergence():
    x = jnp.array([[0.0, 0.0, np.log(np.e - 1), np.log(np.e - 1)], [1.5, -2, 0.3, -1]])
    module = VariationalBottleneck(2, kl_weight=0.25, min_std=1e-2)
    result = module(module.initialize_state(jr.split(jr.key(0), 2)), x)
    mean = np.float64(x[:, :2])
    std = np.log1p(np.exp(np.float64(x[:, 2:]))) + 1e-2
    expected = [
        sum(kl_by_quadrature(m, s) for m, s in zip(*row, strict=True))
        for row in zip(mean, std, strict=True)
    ]
    np.testing.assert_allclose(result.metrics["kl_divergence"], expected, rtol=1e-4)
    np.testing.assert_allclose(
        result.regularization_loss, 0.25 * np.array(expected), rtol=1e-4
    )
    assert expected[0] < 2e-4  # std is 1.01: almost the prior
    np.testing.assert_allclose(result.metrics["mu"], np.mean(mean, -1), rtol=1e-6)
    np.testing.assert_allclose(result.metrics["sigma"], np.mean(std, -1), rtol=1e-5)


def test_the_noise_is_drawn_from_the_advanced_chain(getkey):
    keys = jr.split(getkey(), 3)
    x = jr.normal(getkey(), (3, 4))
    module = VariationalBottleneck(2, min_std=1e-9)
    result = module(keys, x)
    next_chain, draw = advance_keys(keys)
    expected = x[:, :2] + jax.nn.softplus(x[:, 2:]) * normals(draw, 2)
    np.testing.assert_allclose(result.output, expected, rtol=1e-6)
    np.testing.assert_array_equal(
        jr.key_data(result.next_state), jr.key_data(next_chain)
    )
    assert result.rollout_extras is None


def test_the_gradient_is_reparameterised(getkey):
    keys = jr.split(getkey(), 1)
    module = VariationalBottleneck(1, min_std=1e-9)
    x = jnp.array([[0.7, -0.4]])
    gradient = jax.grad(lambda x: module(keys, x).output[0, 0])(x)
    noise = normals(advance_keys(keys)[1], 1)[0, 0]
    np.testing.assert_allclose(gradient, [[1, noise * jax.nn.sigmoid(-0.4)]], rtol=1e-5)


def test_inference_gives_the_mean_whatever_the_key(getkey):
    module = eqx.nn.inference_mode(VariationalBottleneck(2))
    x = jr.normal(getkey(), (3, 4))
    result = module(jr.split(getkey(), 3), x)
    np.testing.assert_array_equal(result.output, x[:, :2])


def test_half_precision_goes_through():
    module = VariationalBottleneck(1)
    result = module(jr.split(jr.key(0), 2), jnp.ones((2, 2), jnp.bfloat16))
    assert result.output.dtype == jnp.bfloat16
    assert result.regularization_loss.dtype == jnp.float32


def test_extreme_inputs_stay_finite():
    module = VariationalBottleneck(1)
    keys = jr.split(jr.key(0), 4)
    x = jnp.array([[0, -200.0], [0, 200.0], [1e4, 0.0], [-1e4, -1e4]])

    def loss(x):
        result = module(keys, x)
        return jnp.sum(result.regularization_loss) + jnp.sum(result.output)

    value, gradient = jax.jit(jax.value_and_grad(loss))(x)
    assert np.isfinite(value) and np.all(np.isfinite(gradient))


def test_an_empty_latent_is_refused():
    with pytest.raises(ValueError, match="latent_size must be at least 1, got 0"):
        VariationalBottleneck(0)


@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_standard_deviation_that_could_vanish_is_refused(value):
    with pytest.raises(ValueError, match="min_std must be greater than 0, got"):
        VariationalBottleneck(2, min_std=value)
