import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special, stats

from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks.sampling_layers import BernoulliSampler


@jax.jit
def switch(logits, mask, extras=None):
    sampler = BernoulliSampler(0.5)
    keys = jr.split(jr.key(0), len(logits))

    def loss(logits):
        result = sampler(keys, {"logits": logits, "mask": mask}, extras)
        total = jnp.sum(result.output.log_likelihood + result.regularization_loss)
        return total, result

    gradient, result = jax.grad(loss, has_aux=True)(logits)
    return result, gradient


def test_switches_are_thrown_with_their_probabilities():
    batch = 20_000
    p = np.array([0.1, 0.5, 0.97])
    logits = jnp.tile(jnp.asarray(special.logit(p), jnp.float32)[None], (batch, 1))
    result, _ = switch(logits, jnp.ones_like(logits, bool))
    action = np.asarray(result.output.action)
    assert action.dtype == np.int32
    for column, probability in zip(action.T, p, strict=True):
        assert stats.binomtest(int(column.sum()), batch, probability).pvalue > 1e-3
    # Independent of each other.
    assert np.max(np.abs(np.corrcoef(action.T) - np.eye(3))) < 4 / batch**0.5


def test_a_switch_that_is_not_allowed_is_off_and_counts_for_nothing(getkey):
    logits = jr.normal(getkey(), (50, 3)).at[:, 1].set(jnp.nan)
    mask = jnp.tile(jnp.array([[True, False, True]]), (50, 1))
    result, gradient = switch(logits, mask)
    action = np.asarray(result.output.action)
    assert not np.any(action[:, 1]) and np.any(action[:, [0, 2]])
    p = special.expit(np.float64(logits[:, [0, 2]]))
    expected = np.sum(stats.bernoulli.logpmf(action[:, [0, 2]], p), axis=-1)
    np.testing.assert_allclose(result.output.log_likelihood, expected, rtol=1e-4)
    entropy = np.sum(stats.bernoulli.entropy(p), axis=-1)
    np.testing.assert_allclose(result.metrics["entropy"], entropy, rtol=1e-4)
    np.testing.assert_array_equal(gradient[:, 1], np.zeros(50))
    assert np.all(np.isfinite(gradient))


def test_where_nothing_is_allowed_all_is_off_for_certain(getkey):
    result, gradient = switch(jnp.full((4, 3), 5.0), jnp.zeros((4, 3), bool))
    for zero in (result.output.action, gradient):
        np.testing.assert_array_equal(zero, np.zeros((4, 3)))
    for zero in (result.output.log_likelihood, result.regularization_loss):
        np.testing.assert_array_equal(zero, np.zeros(4))


def test_infinite_logits_leave_no_choice():
    logits = jnp.array([[jnp.inf, -jnp.inf]] * 100)
    result, gradient = switch(logits, jnp.ones_like(logits, bool))
    np.testing.assert_array_equal(result.output.action, [[1, 0]] * 100)
    np.testing.assert_array_equal(result.output.log_likelihood, np.zeros(100))
    np.testing.assert_array_equal(result.metrics["entropy"], np.zeros(100))
    np.testing.assert_array_equal(gradient, np.zeros((100, 2)))


@pytest.mark.parametrize("logit", [-50.0, 50.0])
def test_what_is_rarer_than_the_noise_resolves_never_happens(logit):
    """A uniform number below the probability would, once in some 10 million draws."""
    logits = jnp.full((1000, 2000), logit)
    result, _ = switch(logits, jnp.ones_like(logits, bool))
    np.testing.assert_array_equal(
        result.output.action, np.full((1000, 2000), logit > 0)
    )
    # 2000 exp(-50), and the entropy 51 times that.
    np.testing.assert_allclose(
        result.output.log_likelihood, np.full(1000, -2000 * np.exp(-50.0)), rtol=1e-3
    )
    np.testing.assert_allclose(
        result.metrics["entropy"], np.full(1000, 51 * 2000 * np.exp(-50.0)), rtol=1e-3
    )


def test_inference_gives_the_likelier_side():
    sampler = eqx.nn.inference_mode(BernoulliSampler(0.0))
    x = {
        "logits": jnp.array([[0.1, -0.1, 3.0]]),
        "mask": jnp.array([[True, True, False]]),
    }
    result = sampler(jr.split(jr.key(0), 1), x)
    np.testing.assert_array_equal(result.output.action, [[1, 0, 0]])


def test_wrong_masks_are_explained():
    x = {"logits": jnp.ones((2, 3)), "mask": jnp.ones((2, 2), bool)}
    with pytest.raises(CompositionError, match=r"boolean mask \[2, 3\].*\[2, 2\]"):
        BernoulliSampler(0.0)(jr.split(jr.key(0), 2), x)
