"""Every sampler's numbers, against the same distribution in float64 by scipy."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special, stats

from nnx_ppo_fn.networks.sampling_layers import (
    BernoulliSampler,
    BetaSampler,
    CategoricalSampler,
    MultiCategoricalSampler,
    NormalSampler,
    NormalTanhSampler,
)


class Reference(NamedTuple):
    """Log-likelihoods of raw actions, and entropies where there is a closed form."""

    log_likelihood: np.ndarray
    entropy: np.ndarray | None


def normal(x, raw, *, log_std=None, squashed=False):
    mean, std = x, np.exp(log_std) if log_std is not None else None
    if log_std is None:
        mean, raw_std = np.split(x, 2, axis=-1)
        std = np.log1p(np.exp(raw_std))
    std = (std + 0.05) * 1.5
    each = stats.norm.logpdf(raw, mean, std)
    if squashed:
        # d tanh(z) / dz = sech(z)**2
        return Reference(np.sum(each - 2 * np.log(1 / np.cosh(raw)), -1), None)
    entropy = stats.norm.entropy(mean, np.broadcast_to(std, mean.shape))
    return Reference(np.sum(each, -1), np.sum(entropy, -1))


def beta(x, raw):
    a, b = np.split(np.log1p(np.exp(x)) + 0.5, 2, axis=-1)
    each = stats.beta(a, b, loc=-1, scale=2)
    action = 2 * special.expit(raw) - 1
    return Reference(np.sum(each.logpdf(action), -1), np.sum(each.entropy(), -1))


def categorical(x, raw):
    p = special.softmax(x, axis=-1)
    return Reference(np.log(p)[np.arange(len(x)), raw], stats.entropy(p, axis=-1))


def multi_categorical(x, raw):
    parts = [
        categorical(logits, raw[:, choice])
        for choice, logits in enumerate(np.split(x, [3, 4], axis=-1))
    ]
    return Reference(*map(sum, zip(*parts, strict=True)))


def bernoulli(x, raw):
    p = special.expit(x)
    each = stats.bernoulli.logpmf(raw, p)
    return Reference(np.sum(each, -1), np.sum(stats.bernoulli.entropy(p), -1))


LOG_STD = np.array([0.25, -1.0])
STDS = {"min_std": 0.05, "std_scale": 1.5}
CASES = {
    "normal": (NormalSampler(0.7, **STDS), 4, normal),
    "normal with log_std": (
        NormalSampler(0.7, **STDS, log_std=jnp.asarray(LOG_STD, jnp.float32)),
        2,
        lambda x, raw: normal(x, raw, log_std=LOG_STD),
    ),
    "squashed normal": (
        NormalTanhSampler(0.7, **STDS),
        4,
        lambda x, raw: normal(x, raw, squashed=True),
    ),
    "squashed normal with log_std": (
        NormalTanhSampler(0.7, **STDS, log_std=jnp.asarray(LOG_STD, jnp.float32)),
        2,
        lambda x, raw: normal(x, raw, log_std=LOG_STD, squashed=True),
    ),
    "beta": (BetaSampler(0.7, min_concentration=0.5), 4, beta),
    "categorical": (CategoricalSampler(0.7), 4, categorical),
    "multi-categorical": (
        MultiCategoricalSampler(0.7, (3, 1, 2)),
        6,
        multi_categorical,
    ),
    "Bernoulli": (BernoulliSampler(0.7), 3, bernoulli),
}

each_case = pytest.mark.parametrize("case", CASES)
KEYS = jr.split(jr.key(1), 6)


@each_case
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_likelihoods_entropies_and_their_gradients(case, dtype, getkey):
    """From numbers of low precision too, exactly: all that follows is float32."""
    sampler, size, reference = CASES[case]
    x = (2 * jr.normal(getkey(), (6, size))).astype(dtype)

    @jax.jit
    def sums(x, extras):
        def loss(x):
            result = sampler(KEYS, x, extras)
            likelihood = result.output.log_likelihood
            return (jnp.sum(likelihood), jnp.sum(result.regularization_loss)), result

        return loss(x)[1], jax.jacrev(lambda x: loss(x)[0])(x)

    result, _ = sums(x, None)
    raw = result.rollout_extras
    again, gradients = sums(x, raw)
    exact = np.float64(x.astype(jnp.float32))
    right = reference(exact, np.asarray(raw))
    for one in (result, again):
        assert one.output.log_likelihood.dtype == jnp.float32
        assert one.regularization_loss.dtype == jnp.float32
        np.testing.assert_allclose(
            one.output.log_likelihood, right.log_likelihood, rtol=1e-4, atol=2e-5
        )
        if right.entropy is not None:
            np.testing.assert_allclose(
                one.regularization_loss, -0.7 * right.entropy, rtol=1e-4, atol=1e-5
            )

    tolerance = 1e-3 if dtype == jnp.float32 else 1e-2
    for of_log_likelihood, gradient in zip((True, False), gradients, strict=True):
        if of_log_likelihood or right.entropy is not None:
            np.testing.assert_allclose(
                gradient.astype(jnp.float32),
                slopes(reference, exact, np.asarray(raw), of_log_likelihood),
                rtol=tolerance,
                atol=tolerance,
            )


def slopes(reference, x, raw, of_log_likelihood):
    """By central differences, one column at a time: rows do not touch each other."""
    columns = []
    for column in range(x.shape[-1]):
        step = np.zeros_like(x)
        step[:, column] = 1e-5
        up, down = (reference(x + s, raw) for s in (step, -step))
        if of_log_likelihood:
            difference = up.log_likelihood - down.log_likelihood
        else:
            difference = -0.7 * (up.entropy - down.entropy)
        columns.append(difference / 2e-5)
    return np.stack(columns, axis=-1)


@each_case
def test_the_mean_surprise_of_draws_is_the_entropy(case, getkey):
    """What ties what is drawn to its likelihood, for all families alike."""
    sampler, size, reference = CASES[case]
    batch = 5_000
    x = jnp.tile(jr.normal(getkey(), (1, size)), (batch, 1))
    result = eqx.filter_jit(sampler)(jr.split(getkey(), batch), x)
    surprise = -np.float64(result.output.log_likelihood)
    entropy = reference(np.float64(x), np.asarray(result.rollout_extras)).entropy
    if entropy is None:
        entropy = np.float64(result.regularization_loss) / -0.7
    error = np.std(surprise) / batch**0.5
    assert abs(np.mean(surprise) - np.mean(entropy)) < 4 * error + 1e-5


@each_case
@pytest.mark.parametrize("size_of_input", [50.0, 1e4])
def test_numbers_and_gradients_are_finite_far_out(case, size_of_input, getkey):
    sampler, size, _ = CASES[case]
    signs = jr.rademacher(getkey(), (6, size), jnp.float32)

    @jax.jit
    @jax.value_and_grad
    def total(x):
        result = sampler(KEYS, x)
        return jnp.sum(result.output.log_likelihood + result.regularization_loss)

    value, gradient = total(size_of_input * signs)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@each_case
def test_a_replay_draws_nothing_that_nothing_uses(case, getkey):
    sampler, size, reference = CASES[case]
    x = jr.normal(getkey(), (6, size))
    raw = jax.eval_shape(sampler, KEYS, x).rollout_extras
    raw = jnp.zeros(raw.shape, raw.dtype)

    def draws(extras):
        text = str(jax.make_jaxpr(sampler.apply)(KEYS, x, extras))
        return "random_bits" in text or "random_gamma" in text

    has_closed_form = reference(np.float64(x), np.asarray(raw)).entropy is not None
    assert draws(None)
    assert draws(raw) is not has_closed_form
