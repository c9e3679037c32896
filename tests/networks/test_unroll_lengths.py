"""A rollout at once is its steps, for rollouts short and long, wherever episodes begin.

The modules with ways of their own through time stand side by side in one `Map`, so that
each length is compiled once, and the steps once for all lengths.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from helpers import bits
from nnx_ppo_fn import (
    Delay,
    Dense,
    GRU,
    LRU,
    LSTM,
    Map,
    MinGRU,
    PopulationGraphBuilder,
    Sequential,
    unroll,
    WindowedAttention,
)
from nnx_ppo_fn._tree import select
from nnx_ppo_fn.networks.unroll import reset_where


LONGEST, BATCH, SIZE = 512, 3, 2
LENGTHS = (1, 2, 33, LONGEST)
BEGINNINGS = {
    "at 0": lambda step, length: step == 0,
    "at the end": lambda step, length: step == length - 1,
    "everywhere": lambda step, length: step >= 0,
    "nowhere": lambda step, length: step < 0,
    "now and then": lambda step, length: step % 5 == 3,
}


def graph(key):
    return (
        PopulationGraphBuilder(key=key)
        .add_input("a", SIZE, input_from="x", activation=jnp.tanh)
        .add_output("b", 1)
        .connect("a", "b", delay=2, reciprocal=True)
        .finalize()
    )


@pytest.fixture
def network(getkey):
    """Of every kind one."""
    return Map(
        lstm=LSTM(SIZE, 2, key=getkey(), trainable_initial_state=True),
        gru=GRU(SIZE, 2, key=getkey(), trainable_initial_state=True),
        lru=LRU(SIZE, 2, key=getkey(), trainable_initial_state=True),
        min_gru=MinGRU(SIZE, 2, key=getkey(), trainable_initial_state=True),
        attention=WindowedAttention(SIZE, 2, key=getkey(), window=4, heads=1),
        delay=Delay(jnp.zeros(SIZE), 3),
        graph=graph(getkey()),
        chain=Sequential([Dense(SIZE, 1, key=getkey()), Delay(jnp.zeros(1), 1)]),
    )


def at_once(network, state, xs, is_first):
    result = unroll(network, state, xs, is_first)
    return result.output, result.next_state, jnp.ones(len(is_first))


def by_steps(network, state, xs, is_first, length):
    """Only the first `length` steps count, so that one program will do for all."""

    def step(carry, inputs):
        x, first, number = inputs
        result = network(reset_where(network, first, carry), x)
        runs = jnp.broadcast_to(number < length, first.shape)
        return select(runs, result.next_state, carry), result.output

    numbers = jnp.arange(LONGEST)
    last, outputs = jax.lax.scan(step, state, (xs, is_first, numbers))
    return outputs, last, (numbers < length).astype(jnp.float32)


@eqx.filter_jit
def with_gradient(way, network, state, xs, is_first, *length):
    """What comes out, and the gradient of one number made of it all."""

    def number(differentiated):
        outputs, last, counts = way(
            *eqx.combine(differentiated, rest), is_first, *length
        )
        total = sum(
            map(weighted, jtu.tree_leaves(eqx.filter(last, eqx.is_inexact_array)))
        )
        for leaf in jtu.tree_leaves(outputs):
            total += jnp.vdot(counts, jax.vmap(weighted)(leaf))
        return total, (outputs, last)

    everything = (network, state, xs)
    differentiated, rest = eqx.partition(everything, eqx.is_inexact_array)
    gradient, result = jax.grad(number, has_aux=True)(differentiated)
    return result, gradient


def weighted(leaf):
    return jnp.vdot(jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)), leaf.ravel())


def padded(tree):
    """Leaves `[T, B, ...]` of the longest rollout, with ones in what is left over."""

    def filled(leaf):
        rest = [(0, 0)] * (leaf.ndim - 1)
        widths = [(0, LONGEST - len(leaf)), *rest]
        return np.pad(leaf, widths, constant_values=1)

    return jtu.tree_map(filled, tree)


def expect_close(found, expected, relative, message):
    """Leaf by leaf, in units of the leaf's largest number."""
    pairs = zip(jtu.tree_leaves(found), jtu.tree_leaves(expected), strict=True)
    for one, other in pairs:
        one, other = bits(one), bits(other)[: len(one)]
        if one.dtype.kind == "f":
            atol = relative * np.max(np.abs(other), initial=0.1)
            np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=message)
        else:
            np.testing.assert_array_equal(one, other, err_msg=message)


@pytest.mark.parametrize("length", LENGTHS)
def test_at_once_is_step_by_step(length, network, getkey):
    state = network.initialize_state(jr.split(getkey(), BATCH))
    inputs = jr.normal(getkey(), (length, BATCH, SIZE))
    xs = {name: inputs for name in network.components} | {"graph": {"x": inputs}}
    for place, begins in BEGINNINGS.items():
        steps = begins(np.arange(length), length)[:, None]
        # One environment goes on throughout.
        is_first = steps & np.array([True, False, True])
        found, gradient = with_gradient(at_once, network, state, xs, is_first)
        expected, expected_gradient = with_gradient(
            by_steps, network, state, padded(xs), padded(is_first), jnp.asarray(length)
        )
        message = f"episodes begin {place}"
        expect_close(found, expected, 1e-5, message)
        expect_close(gradient, expected_gradient, 1e-5, message)
        state = expected[1]
