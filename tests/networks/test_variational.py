import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import tree_equal
from nnx_ppo_fn import CompositionError
from nnx_ppo_fn._keys import advance_keys, normals
from nnx_ppo_fn.networks.unroll import unroll, unroll_by_step
from nnx_ppo_fn.networks.variational import (
    AR1VariationalBottleneck,
    VariationalBottleneck,
)


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


LENGTH, BATCH, LATENTS = 5, 4, 2


def resets():
    """In the middle, at the start, and twice in a row; the last row has none."""
    pattern = np.zeros((LENGTH, BATCH), bool)
    pattern[2, 0] = pattern[0, 1] = pattern[3, 2] = pattern[4, 2] = True
    return pattern


def inputs(getkey):
    return jr.normal(getkey(), (LENGTH, BATCH, 2 * LATENTS))


def evolved(module, getkey):
    """A carry after a few steps, so that there is a step before the first."""
    state = module.initialize_state(jr.split(getkey(), BATCH))
    is_first = jnp.zeros((LENGTH, BATCH), bool)
    return unroll(module, state, inputs(getkey), is_first).next_state


def changes(latents, last, is_first):
    """`z - last_z`, `[T, B, n]` in float64; 0 where there is no step before."""
    before = np.concatenate([last[None], latents[:-1]])
    return np.where(is_first[..., None], 0, np.float64(latents) - np.float64(before))


@pytest.mark.parametrize("run", [unroll, unroll_by_step])
def test_a_latent_pays_for_changing(run, getkey):
    options = {"kl_weight": 0.25, "min_std": 1e-2}
    module = AR1VariationalBottleneck(LATENTS, ar1_weight=0.5, **options)
    state, xs = evolved(module, getkey), inputs(getkey)
    is_first = resets()
    result = run(module, state, xs, jnp.asarray(is_first))

    change = changes(result.output, np.asarray(state.last_latent), is_first)
    expected = np.mean(change**2, axis=-1)
    np.testing.assert_allclose(result.metrics["l2_diff"], expected, rtol=1e-4)
    assert np.all(np.asarray(result.metrics["l2_diff"])[is_first] == 0)
    plain = VariationalBottleneck(LATENTS, **options)
    sampled = run(plain, state.keys, xs, jnp.asarray(is_first))
    np.testing.assert_array_equal(result.output, sampled.output)
    np.testing.assert_allclose(
        result.regularization_loss,
        0.5 * expected + np.float64(sampled.regularization_loss),
        rtol=1e-5,
    )
    assert result.metrics.keys() == sampled.metrics.keys() | {"l2_diff"}
    np.testing.assert_array_equal(result.next_state.last_latent, sampled.output[-1])
    assert np.all(result.next_state.has_last)
    assert tree_equal(result.next_state.keys, sampled.next_state)


def test_the_first_step_ever_costs_nothing(getkey):
    module = AR1VariationalBottleneck(LATENTS)
    state = module.initialize_state(jr.split(getkey(), BATCH))
    assert not np.any(state.has_last)
    first = module(state, inputs(getkey)[0])
    np.testing.assert_array_equal(first.metrics["l2_diff"], np.zeros(BATCH))
    reset = module.reset_state(first.next_state)
    assert not np.any(reset.has_last) and np.all(reset.last_latent == 0)


@pytest.mark.parametrize("back_in_time", [True, False])
@pytest.mark.parametrize("run", [unroll, unroll_by_step])
def test_the_gradient_of_change(run, back_in_time, getkey):
    module = AR1VariationalBottleneck(
        LATENTS, kl_weight=0, ar1_weight=0.5, backprop_through_time=back_in_time
    )
    state, xs, is_first = evolved(module, getkey), inputs(getkey), resets()
    weights = jr.normal(getkey(), (LENGTH, BATCH))

    def loss(xs, last_latent):
        start = eqx.tree_at(lambda state: state.last_latent, state, last_latent)
        result = run(module, start, xs, jnp.asarray(is_first))
        return jnp.sum(weights * result.regularization_loss), result.output

    (by_x, by_last), latents = jax.grad(loss, argnums=(0, 1), has_aux=True)(
        xs, state.last_latent
    )
    change = changes(latents, np.asarray(state.last_latent), is_first)
    pull = 0.5 * np.float64(weights)[..., None] * 2 * change / LATENTS
    by_latent = pull.copy()
    if back_in_time:
        by_latent[:-1] -= pull[1:]
    mean, raw = np.split(np.float64(xs), 2, axis=-1)
    noise = (np.float64(latents) - mean) / (np.log1p(np.exp(raw)) + 1e-6)
    by_raw = by_latent * noise / (1 + np.exp(-raw))
    expected = np.concatenate([by_latent, by_raw], axis=-1)
    np.testing.assert_allclose(by_x, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(by_last, -pull[0] * back_in_time, rtol=1e-4, atol=1e-6)


def test_a_smooth_latent_in_inference_is_the_mean(getkey):
    module = eqx.nn.inference_mode(AR1VariationalBottleneck(LATENTS))
    state = module.initialize_state(jr.split(getkey(), BATCH))
    xs = inputs(getkey)
    result = unroll(module, state, xs, jnp.zeros((LENGTH, BATCH), bool))
    np.testing.assert_array_equal(result.output, xs[..., :LATENTS])
    change = np.diff(np.float64(xs[..., :LATENTS]), axis=0)
    np.testing.assert_allclose(
        result.metrics["l2_diff"][1:], np.mean(change**2, -1), rtol=1e-4
    )


def test_a_latent_in_half_precision_is_remembered_in_full(getkey):
    module = AR1VariationalBottleneck(LATENTS)
    state = module.initialize_state(jr.split(getkey(), BATCH))
    result = module(state, inputs(getkey)[0].astype(jnp.bfloat16))
    assert result.output.dtype == jnp.bfloat16
    assert result.regularization_loss.dtype == jnp.float32
    assert result.next_state.last_latent.dtype == jnp.float32
    np.testing.assert_array_equal(
        result.next_state.last_latent.astype(jnp.bfloat16), result.output
    )


def test_the_width_of_a_smooth_latent_is_checked(getkey):
    module = AR1VariationalBottleneck(LATENTS)
    state = module.initialize_state(jr.split(getkey(), BATCH))
    with pytest.raises(CompositionError, match=r"expected x \[B, 4\], got \[4, 3\]"):
        module(state, jnp.ones((BATCH, 3)))
    with pytest.raises(CompositionError, match=r"xs \[T, B, 4\], got \[2, 4, 3\]"):
        unroll(module, state, jnp.ones((2, BATCH, 3)), jnp.zeros((2, BATCH), bool))
    with pytest.raises(ValueError, match="latent_size must be at least 1, got 0"):
        AR1VariationalBottleneck(0)


@pytest.mark.parametrize("kind", [VariationalBottleneck, AR1VariationalBottleneck])
def test_a_latent_of_integers_is_refused(kind, getkey):
    module, x = kind(1), jnp.ones((2, 2), jnp.int32)
    state = module.initialize_state(jr.split(getkey(), 2))
    methods = [(type(module).__call__, x)]
    if kind is AR1VariationalBottleneck:
        methods.append((type(module).unroll, x[None], jnp.zeros((1, 2), bool)))
    else:
        state, methods = jr.split(getkey(), 2), [(type(module).apply, x)]
    for method, *arguments in methods:
        while hasattr(method, "__wrapped__"):  # A type checker would speak first.
            method = method.__wrapped__
        with pytest.raises(CompositionError, match=r"floating-point.*got int32"):
            method(module, state, *arguments)


def test_a_smooth_latent_of_no_steps_changes_nothing(getkey):
    module = AR1VariationalBottleneck(2)
    state = module.initialize_state(jr.split(getkey(), 3))
    result = unroll(module, state, jnp.ones((0, 3, 4)), jnp.zeros((0, 3), bool))
    assert result.output.shape == (0, 3, 2) and tree_equal(result.next_state, state)
