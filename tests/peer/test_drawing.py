"""Modules that draw give the original's numbers for the same noise.

The chains of keys are different by intent, so the original is handed our keys. It draws
a sampler's action for the whole batch at once, which for a batch of one environment is
what that environment draws here.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from nnx_ppo.networks import sampling_layers, variational

from nnx_ppo_fn import (
    advance_keys,
    AR1VariationalBottleneck,
    NormalTanhSampler,
    unroll,
    VariationalBottleneck,
)
from peer.original import as_released, assert_same_numbers


STEPS, BATCH, SIZE = 20, 3, 2
KEYS = jr.split(jr.key(1), BATCH)
_, DRAWS = jax.lax.scan(lambda chain, _: advance_keys(chain), KEYS, length=STEPS)

GENERATOR = np.random.default_rng(3)
XS = jnp.asarray(GENERATOR.normal(0.5, 1.5, (STEPS, BATCH, 2 * SIZE)), jnp.float32)
OTHER_XS = XS + 0.3
IS_FIRST = jnp.asarray(GENERATOR.random((STEPS, BATCH)) < 0.2)

NO_RNG = None


def assert_same_metrics(ours, theirs):
    """Ours are one number per environment: the mean over features, where there are."""
    for name, number in theirs.items():
        if number.ndim > 2:
            number = jnp.mean(number, axis=-1)
        assert_same_numbers(ours[name], number)


def test_variational_bottleneck():
    options = {"kl_weight": 0.3, "min_std": 0.05}
    theirs = variational.VariationalBottleneck(SIZE, NO_RNG, **options)
    with as_released():
        expected = jax.jit(jax.vmap(theirs))(DRAWS, XS)

    ours = VariationalBottleneck(SIZE, **options)
    found = eqx.filter_jit(unroll)(ours, KEYS, XS, IS_FIRST)
    assert_same_numbers(found.output, expected.output)
    assert_same_numbers(found.regularization_loss, expected.regularization_loss)
    assert_same_metrics(found.metrics, expected.metrics)


@pytest.mark.parametrize("through_time", [True, False])
def test_ar1_variational_bottleneck(through_time):
    options = {"kl_weight": 0.3, "min_std": 0.05, "ar1_weight": 0.7}
    options |= {"backprop_through_time": through_time}
    theirs = variational.AR1VariationalBottleneck(SIZE, NO_RNG, **options)

    @jax.jit
    def their_steps(xs):
        def step(last_z, inputs):
            x, first, draw = inputs
            old = {"keys": draw, "last_z": last_z}
            last_z = jnp.where(
                first[:, None], theirs.reset_state(old)["last_z"], last_z
            )
            out = theirs({"keys": draw, "last_z": last_z}, x)
            return out.next_state["last_z"], out

        nothing = jnp.full((BATCH, SIZE), jnp.nan)
        _, out = jax.lax.scan(step, nothing, (xs, IS_FIRST, DRAWS))
        return jnp.sum(out.regularization_loss), out

    ours = AR1VariationalBottleneck(SIZE, **options)

    @jax.jit
    def our_steps(xs):
        out = unroll(ours, ours.initialize_state(KEYS), xs, IS_FIRST)
        return jnp.sum(out.regularization_loss), out

    with as_released():
        their_slope, expected = jax.grad(their_steps, has_aux=True)(XS)
    our_slope, found = jax.grad(our_steps, has_aux=True)(XS)
    assert_same_numbers(found.output, expected.output)
    assert_same_numbers(found.regularization_loss, expected.regularization_loss)
    assert_same_metrics(found.metrics, expected.metrics)
    assert_same_numbers(found.next_state.last_latent, expected.next_state["last_z"][-1])
    assert_same_numbers(our_slope, their_slope)


SAMPLER = {"entropy_weight": 0.3, "min_std": 0.05, "std_scale": 0.8}


def their_samples(xs, rollout_extras=None, deterministic=False):
    """Every environment by itself, drawing from its own key."""

    def sample(draw, x, raw_action):
        sampler = sampling_layers.NormalTanhSampler(lambda: draw, **SAMPLER)
        sampler.deterministic = deterministic
        raw_action = None if raw_action is None else raw_action[None]
        out = sampler((), x[None], raw_action)
        return jtu.tree_map(lambda leaf: leaf[0], out)

    with as_released():
        return jax.jit(jax.vmap(jax.vmap(sample)))(DRAWS, xs, rollout_extras)


def our_samples(xs, rollout_extras=None, inference=False):
    sampler = NormalTanhSampler(**SAMPLER, inference=inference)
    return eqx.filter_jit(unroll)(sampler, KEYS, xs, IS_FIRST, rollout_extras)


@pytest.mark.parametrize("silent", [False, True])
def test_normal_tanh_sampler(silent):
    expected = their_samples(XS, deterministic=silent)
    found = our_samples(XS, inference=silent)
    assert_same_numbers(found.output.action, expected.output["action"])
    assert_same_numbers(found.output.log_likelihood, expected.output["log_likelihood"])
    assert_same_numbers(found.rollout_extras, expected.rollout_extras)
    assert_same_metrics(found.metrics, expected.metrics)


def test_a_sampler_replays_the_recorded_action():
    recorded = our_samples(XS).rollout_extras
    expected = their_samples(OTHER_XS, recorded)
    found = our_samples(OTHER_XS, recorded)
    assert_same_numbers(found.output.action, expected.output["action"])
    assert_same_numbers(found.output.log_likelihood, expected.output["log_likelihood"])


def test_the_entropy_differs_by_what_has_no_mean_and_no_gradient():
    """The original takes the normal part of the entropy in closed form."""
    expected, found = their_samples(XS), our_samples(XS)
    mean, std = expected.metrics["mu"], expected.metrics["sigma"]
    noise = (expected.rollout_extras - mean) / std
    surprise = 0.5 * jnp.sum(jnp.square(noise) - 1.0, axis=-1)
    assert_same_numbers(
        found.regularization_loss + SAMPLER["entropy_weight"] * surprise,
        expected.regularization_loss,
        tolerance=2e-6,
    )

    def total(samples):
        return lambda xs: jnp.sum(samples(xs).regularization_loss)

    assert_same_numbers(
        jax.grad(total(our_samples))(XS), jax.grad(total(their_samples))(XS)
    )
