import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate, special, stats

from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks.sampling_layers import Beta, BetaSampler


log_likelihood = jax.jit(lambda a, b, raw: Beta(a, b).log_likelihood(raw))
entropy = jax.jit(lambda a, b: Beta(a, b).entropy(lambda: None))
concentrations = st.floats(-3, 3).map(lambda exponent: np.float32(10**exponent))


def column(*values):
    return jnp.asarray(values, jnp.float32)[:, None]


@settings(max_examples=50, deadline=None)
@given(concentrations, concentrations, st.floats(-60, 60))
def test_the_density_of_the_action(a, b, raw):
    # By the ends' own logarithms: in float64 too, u is 1 long before raw is 60.
    a64, b64, raw = np.float64(a), np.float64(b), np.float64(np.float32(raw))
    log_u, log_rest = -np.logaddexp(0, -raw), -np.logaddexp(0, raw)
    terms = (a64 - 1) * log_u, (b64 - 1) * log_rest, -special.betaln(a64, b64)
    size = 1 + sum(map(abs, terms))
    got = log_likelihood(column(a), column(b), column(raw))[0]
    assert abs(got - (sum(terms) - np.log(2))) < 2e-6 * size


@pytest.mark.parametrize("a, b", [(1, 1), (1.5, 4), (0.5, 0.7), (30, 20)])
def test_it_integrates_to_one_over_actions_and_has_the_entropy_it_says(a, b):
    raw = np.linspace(-60, 60, 60_001)
    log_density = np.float64(
        log_likelihood(
            jnp.full((raw.size, 1), a, jnp.float32),
            jnp.full((raw.size, 1), b, jnp.float32),
            jnp.asarray(raw, jnp.float32)[:, None],
        )
    )
    # d tanh(raw / 2) = sech(raw / 2)**2 / 2 d raw
    weight = np.exp(log_density) * 0.5 / np.cosh(raw / 2) ** 2
    assert abs(integrate.trapezoid(weight, raw) - 1) < 1e-4
    expected = -integrate.trapezoid(weight * log_density, raw)
    assert abs(entropy(column(a), column(b))[0] - expected) < 1e-4


def test_actions_are_drawn_from_it():
    batch = 5_000
    alpha, beta = (
        jnp.tile(jnp.array([v]), (batch, 1)) for v in ([0.3, 3.0], [2.0, 5.0])
    )
    drawn = Beta(alpha, beta)
    raw = jax.jit(lambda keys: drawn.sample(keys))(jr.split(jr.key(3), batch))
    action = np.float64(drawn.action(raw))
    for column, a, b in zip(action.T, [0.3, 3.0], [2.0, 5.0], strict=True):
        assert stats.kstest(column, stats.beta(a, b, -1, 2).cdf).pvalue > 1e-3
    # Independent of each other.
    assert abs(np.corrcoef(action.T)[0, 1]) < 4 / batch**0.5
    metrics = drawn.metrics()
    means = [stats.beta(a, b, -1, 2).mean() for a, b in ((0.3, 2.0), (3.0, 5.0))]
    stds = [stats.beta(a, b, -1, 2).std() for a, b in ((0.3, 2.0), (3.0, 5.0))]
    np.testing.assert_allclose(metrics["mu"][0], np.mean(means), rtol=1e-5)
    np.testing.assert_allclose(metrics["sigma"][0], np.mean(stds), rtol=1e-5)


def test_a_draw_at_the_very_end_keeps_its_distance_to_it():
    """With a concentration of 1e-2, u is mostly within 1e-10 of an end."""
    drawn = Beta(*2 * [jnp.full((200, 2), 1e-2)])
    raw = drawn.sample(jr.split(jr.key(4), 200))
    assert np.all(np.isfinite(raw)) and np.mean(np.abs(raw) > 23) > 0.5
    likelihood = drawn.log_likelihood(raw)
    assert np.all(np.isfinite(likelihood)) and np.mean(likelihood > 10) > 0.5


def test_one_and_one_is_uniform():
    x = jnp.full((4, 2), -1e4)  # softplus is 0 there
    result = BetaSampler(1.0)(jr.split(jr.key(0), 4), x)
    for number in (result.output.log_likelihood, result.regularization_loss):
        np.testing.assert_allclose(number, [-np.log(2)] * 4, rtol=1e-5)


def test_inference_gives_the_mean(getkey):
    x, keys = jr.normal(getkey(), (5, 4)), jr.split(getkey(), 5)
    result = eqx.nn.inference_mode(BetaSampler(0.1))(keys, x)
    a, b = np.split(np.log1p(np.exp(np.float64(x))) + 1, 2, axis=-1)
    np.testing.assert_allclose(result.output.action, 2 * a / (a + b) - 1, rtol=1e-4)


def test_the_likeliest_raw_action_is_the_mode(getkey):
    drawn = Beta(column(2.5), column(0.7))
    slope = jax.grad(
        lambda raw: jnp.sum(
            drawn.log_likelihood(raw) + jnp.log(1 - jnp.square(jnp.tanh(raw / 2)))[:, 0]
        )
    )(drawn.mode())
    np.testing.assert_allclose(slope, [[0.0]], atol=1e-5)


def test_an_odd_number_of_concentrations_is_explained():
    with pytest.raises(CompositionError, match=r"alpha, then beta\), got \[2, 3\]"):
        BetaSampler(0.0)(jr.split(jr.key(0), 2), jnp.ones((2, 3)))
