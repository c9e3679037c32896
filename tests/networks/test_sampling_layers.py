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
from nnx_ppo_fn.networks.sampling_layers import (
    CategoricalSampler,
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


# Categorical


def reference_log_probabilities(logits, mask=None):
    logits = np.asarray(logits, np.float64)
    logits = logits if mask is None else np.where(mask, logits, -np.inf)
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


def test_likelihoods_and_entropy_of_a_categorical(getkey):
    logits, keys = jr.normal(getkey(), (6, 4)), jr.split(getkey(), 6)
    result = CategoricalSampler(0.5)(keys, logits)
    expected = reference_log_probabilities(logits)
    action = np.asarray(result.output.action)
    assert action.dtype == np.int32 and result.rollout_extras is result.output.action
    np.testing.assert_allclose(
        result.output.log_likelihood, expected[np.arange(6), action], rtol=1e-5
    )
    entropy = [stats.entropy(np.exp(row)) for row in expected]
    np.testing.assert_allclose(result.metrics["entropy"], entropy, rtol=1e-5)
    np.testing.assert_allclose(
        result.regularization_loss, -0.5 * np.array(entropy), rtol=1e-5
    )

    recorded = jnp.array([3, 2, 1, 0, 0, 1], jnp.int32)
    replayed = CategoricalSampler(0.5)(keys, logits, recorded)
    assert replayed.output.action is recorded is replayed.rollout_extras
    np.testing.assert_allclose(
        replayed.output.log_likelihood, expected[np.arange(6), recorded], rtol=1e-5
    )


def test_actions_are_drawn_with_their_probabilities():
    batch = 20_000
    logits = jnp.tile(jnp.log(jnp.array([[0.1, 0.2, 0.3, 0.4]])), (batch, 1))
    mask = jnp.tile(jnp.array([[True, True, False, True]]), (batch, 1))
    keys = jr.split(jr.key(2), batch)
    sample = jax.jit(lambda x: CategoricalSampler(0.0)(keys, x).output.action)
    for x, p in [
        (logits, [0.1, 0.2, 0.3, 0.4]),
        ({"logits": logits, "mask": mask}, [1 / 7, 2 / 7, 0, 4 / 7]),
    ]:
        counts = np.bincount(sample(x), minlength=4)
        allowed = np.array(p) > 0
        assert np.all(counts[~allowed] == 0)
        expected = batch * np.array(p)[allowed]
        assert stats.chisquare(counts[allowed], expected).pvalue > 1e-3


@jax.jit
def run_masked(logits, mask, extras=None):
    sampler = CategoricalSampler(1.0)
    keys = jr.split(jr.key(0), len(logits))

    def loss(logits):
        result = sampler(keys, {"logits": logits, "mask": mask}, extras)
        total = jnp.sum(result.output.log_likelihood + result.regularization_loss)
        return total, result

    (_, result), gradient = jax.value_and_grad(loss, has_aux=True)(logits)
    return result, gradient


def test_one_allowed_action_is_certain():
    logits = jnp.array([[5.0, -3.0, 1e4], [0.0, 0.0, 0.0]])
    mask = jnp.array([[False, True, False], [True, False, False]])
    result, gradient = run_masked(logits, mask)
    np.testing.assert_array_equal(result.output.action, [1, 0])
    np.testing.assert_array_equal(result.output.log_likelihood, [0, 0])
    np.testing.assert_array_equal(result.metrics["entropy"], [0, 0])
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


def test_masked_entropy_and_likelihood_leave_out_what_is_forbidden(getkey):
    logits = jr.normal(getkey(), (3, 4))
    mask = jnp.array([[True, True, False, True]] * 3)
    result, gradient = run_masked(logits, mask)
    expected = reference_log_probabilities(logits, mask)
    action = result.output.action
    np.testing.assert_allclose(
        result.output.log_likelihood, expected[np.arange(3), action], rtol=1e-5
    )
    entropy = [stats.entropy(np.exp(row)) for row in expected]
    np.testing.assert_allclose(result.metrics["entropy"], entropy, rtol=1e-5)
    np.testing.assert_array_equal(gradient[:, 2], np.zeros(3))
    assert np.all(np.isfinite(gradient))


def test_no_allowed_action_stays_finite():
    logits = jnp.array([[1.0, 2.0, 3.0]])
    result, gradient = run_masked(logits, jnp.zeros((1, 3), bool))
    expected = reference_log_probabilities(logits)[0, int(result.output.action[0])]
    np.testing.assert_allclose(result.output.log_likelihood, [expected], rtol=1e-5)
    assert np.all(np.isfinite(gradient))


def test_a_recorded_action_that_is_forbidden_now_stays_finite():
    mask = jnp.array([[True, False, True]])
    result, gradient = run_masked(jnp.zeros((1, 3)), mask, jnp.array([1], jnp.int32))
    assert result.output.log_likelihood[0] < -1e20
    assert np.all(np.isfinite(gradient))


def test_inference_gives_the_likeliest_allowed_action():
    sampler = eqx.nn.inference_mode(CategoricalSampler(0.0))
    logits = jnp.array([[0.0, 2.0, 1.0]])
    keys = jr.split(jr.key(0), 1)
    assert sampler(keys, logits).output.action == 1
    x = {"logits": logits, "mask": jnp.array([[True, False, True]])}
    assert sampler(keys, x).output.action == 2


@pytest.mark.parametrize(
    "x, message",
    [
        (jnp.ones((2, 3, 4)), r"expected logits \[B, n\], got \[2, 3, 4\]"),
        ({"logits": jnp.ones((2, 3))}, r"got one with \['logits'\]"),
        (
            {"logits": jnp.ones((2, 3)), "mask": jnp.ones((2, 3))},
            r"boolean mask \[2, 3\] like the logits, got float32 \[2, 3\]",
        ),
    ],
)
def test_wrong_logits_are_explained(x, message):
    with pytest.raises(CompositionError, match=message):
        CategoricalSampler(0.0)(jr.split(jr.key(0), 2), x)


def test_an_odd_number_of_parameters_is_explained():
    with pytest.raises(CompositionError, match=r"\[B, 2 \* action_size\].*\[2, 3\]"):
        NormalTanhSampler(0.0)(jr.split(jr.key(0), 2), jnp.ones((2, 3)))


def test_logits_of_minus_infinity_forbid_as_a_mask_does(getkey):
    finite, mask = jr.normal(getkey(), (3, 4)), jnp.array([[True, True, False, True]])
    keys = jr.split(getkey(), 3)

    @jax.jit
    def run(x):
        def loss(x):
            result = CategoricalSampler(1.0)(keys, x)
            return jnp.sum(
                result.output.log_likelihood + result.regularization_loss
            ), result

        return jax.grad(loss, has_aux=True, allow_int=True)(x)

    gradient, forbidden = run(jnp.where(mask, finite, -jnp.inf))
    masked_gradient, masked = run({"logits": finite, "mask": jnp.tile(mask, (3, 1))})
    np.testing.assert_array_equal(forbidden.output.action, masked.output.action)
    np.testing.assert_array_equal(
        forbidden.metrics["entropy"], masked.metrics["entropy"]
    )
    np.testing.assert_array_equal(gradient, masked_gradient["logits"])
    assert np.all(np.isfinite(gradient)) and np.all(forbidden.metrics["entropy"] > 0)


@pytest.mark.parametrize("low", [-1e30, -1e38])
def test_forbidden_actions_are_not_drawn_however_low_the_allowed_logits(low):
    logits = jnp.full((200, 4), low)
    mask = jnp.tile(jnp.array([[False, True, False, True]]), (200, 1))
    result = CategoricalSampler(0.0)(
        jr.split(jr.key(0), 200), {"logits": logits, "mask": mask}
    )
    assert set(np.unique(result.output.action)) == {1, 3}
    np.testing.assert_allclose(result.metrics["entropy"], np.log(2), rtol=1e-6)


@pytest.mark.parametrize("option", ["min_std", "std_scale"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_standard_deviation_that_could_vanish_is_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be greater than 0, got"):
        NormalTanhSampler(0.1, **{option: value})
    # What a sweep maps over is not looked at.
    NormalTanhSampler(0.1, **{option: jnp.float32(value)})
