"""Runs nnx-ppo, the original, beside ours: same weights, same inputs, same resets."""

import contextlib
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from flax import nnx
from nnx_ppo.networks import recurrent as original_recurrent

from helpers import bits
from nnx_ppo_fn import Dense, LSTM, PPOAdapter, Sequential
from nnx_ppo_fn.networks.unroll import reset_where


KEY = jr.key(0)


@contextlib.contextmanager
def as_released():
    """JAX as the original expects it, which casts and broadcasts as it likes."""
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


class StillRngs(nnx.Rngs):
    """Gives one and the same key to whoever draws, and never moves on.

    What the original draws from its own generator has no part in these comparisons.
    """

    def __call__(self):
        return KEY


class Steps(NamedTuple):
    """What a module said over time, leaves `[T, B, ...]`."""

    output: Any
    next_state: Any
    regularization_loss: Any
    metrics: Any
    rollout_extras: Any


def stirred(theirs):
    """The original's module with random numbers in every parameter, biases included."""
    generator = np.random.default_rng(17)
    _, parameters, _ = nnx.split(theirs, nnx.Param, ...)

    def stir(leaf):
        noise = generator.normal(scale=0.3, size=leaf.shape)
        return jnp.asarray(np.asarray(leaf) + noise, jnp.float32)

    nnx.update(theirs, jtu.tree_map(stir, parameters))
    return theirs


def compiled(theirs):
    """The original's module as it comes out of every `nnx.jit`."""
    return nnx.merge(*nnx.split(theirs))


def with_weights_of(theirs, ours):
    """Our module with the weights of the original's, leaf by leaf."""
    if isinstance(ours, Dense):
        bias = None if theirs.linear.bias is None else theirs.linear.bias[...]
        return _replaced(
            ours, lambda m: (m.kernel, m.bias), (theirs.linear.kernel[...], bias)
        )
    if isinstance(ours, LSTM):
        weights = _lstm_weights(theirs)
        return _replaced(
            ours,
            lambda m: (m.kernel, m.recurrent_kernel, m.bias, m.initial_state),
            weights,
        )
    if isinstance(ours, Sequential):
        layers = map(with_weights_of, theirs.layers, ours.layers)
        return Sequential(tuple(layers))
    if isinstance(ours, PPOAdapter):
        return PPOAdapter(
            with_weights_of(theirs.action, ours.action),
            with_weights_of(theirs.value, ours.value),
        )
    if hasattr(ours, "components"):
        components = {
            name: with_weights_of(theirs.components[name], component)
            for name, component in ours.components.items()
        }
        return type(ours)(components)
    return ours


def stepper(theirs):
    """Compiles the original's module to a function of what it meets over time.

    The carry is reset before a step that is a first one. Statistics are those that the
    module has when the function is called.
    """
    structure, _ = nnx.split(theirs)

    def over_time(arrays, state, xs, is_first, extras):
        module = nnx.merge(structure, arrays)

        def step(carry, inputs):
            x, first, step_extras = inputs
            carry = jtu.tree_map(
                lambda new, old: jnp.where(_rows(first, old), new, old),
                module.reset_state(carry),
                carry,
            )
            out = module(carry, x, step_extras)
            loss = jnp.broadcast_to(out.regularization_loss, first.shape)
            return out.next_state, Steps(
                out.output, out.next_state, loss, out.metrics, out.rollout_extras
            )

        return jax.lax.scan(step, state, (xs, is_first, extras))[1]

    over_time = jax.jit(over_time)

    def run(state, xs, is_first, extras=None):
        with as_released():
            return over_time(nnx.split(theirs)[1], state, xs, is_first, extras)

    return run


@eqx.filter_jit
def our_steps(ours, state, xs, is_first, extras=None):
    """The same, through our step form."""

    def step(carry, inputs):
        x, first, step_extras = inputs
        out = ours(reset_where(ours, first, carry), x, step_extras)
        return out.next_state, Steps(
            out.output,
            out.next_state,
            out.regularization_loss,
            out.metrics,
            out.rollout_extras,
        )

    return jax.lax.scan(step, state, (xs, is_first, extras))[1]


def assert_same_numbers(ours, theirs, tolerance=1e-6):
    """The leaves of two trees are equal one by one, whatever holds them."""
    our_leaves, their_leaves = jtu.tree_leaves(ours), jtu.tree_leaves(theirs)
    assert len(our_leaves) == len(their_leaves)
    for our_leaf, their_leaf in zip(our_leaves, their_leaves, strict=True):
        assert our_leaf.shape == their_leaf.shape
        assert our_leaf.dtype == their_leaf.dtype
        np.testing.assert_allclose(
            bits(our_leaf), bits(their_leaf), rtol=tolerance, atol=tolerance
        )


def _rows(first, leaf):
    return first.reshape(first.shape + (1,) * (leaf.ndim - first.ndim))


def _replaced(module, where, values):
    return eqx.tree_at(where, module, values, is_leaf=lambda leaf: leaf is None)


def _lstm_weights(theirs: original_recurrent.LSTM):
    """`(kernel, recurrent_kernel, bias, initial_state)` from either of flax's cells."""
    cell = theirs.cell
    if isinstance(cell, nnx.OptimizedLSTMCell):
        inward, inner = [cell.dense_i], [cell.dense_h]
    else:
        inward = [cell.ii, cell.if_, cell.ig, cell.io]
        inner = [cell.hi, cell.hf, cell.hg, cell.ho]
    initial_state = None
    if theirs.trainable_initial_state:
        # Flax's cells take (c, h), whatever the names under which it is handed to them.
        initial_state = theirs.initial_c[...], theirs.initial_h[...]
    return (
        jnp.concatenate([linear.kernel[...] for linear in inward], axis=-1),
        jnp.concatenate([linear.kernel[...] for linear in inner], axis=-1),
        jnp.concatenate([linear.bias[...] for linear in inner], axis=-1),
        initial_state,
    )
