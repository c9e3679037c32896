"""A fault in one episode reaches no other one, and no gradient of another one.

One step's input of one environment is replaced by NaN, an infinity or a huge number,
and resets stand before and behind. All numbers of the other episodes, and all their
gradients, are what the same rollout gives step by step.
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
from nnx_ppo_fn.networks import _linear_scan
from nnx_ppo_fn.networks.unroll import unroll_by_step


LENGTH, BATCH, SIZE = 9, 3, 2
IS_FIRST = jnp.zeros((LENGTH, BATCH), bool).at[3, 1].set(True).at[6, 1].set(True)
# In an episode of the rollout, and in one that was under way before it.
PLACES = ((4, slice(3, 6)), (1, slice(0, 3)))
FAULTS = (np.nan, np.inf, 1e20, -1e20, 1e30)


def graph(key):
    return (
        PopulationGraphBuilder(key=key)
        .add_input("a", SIZE, input_from="x", activation=jnp.tanh)
        .add_output("b", 1)
        .connect("a", "b", delay=2, reciprocal=True)
        .finalize()
    )


@pytest.fixture(scope="module")
def network():
    """All ways through time side by side, with weights that are all at random."""
    keys = iter(jr.split(jr.key(0), 100))
    modules = Map(
        lstm=LSTM(SIZE, 2, key=next(keys), trainable_initial_state=True),
        gru=GRU(SIZE, 2, key=next(keys), trainable_initial_state=True),
        lru=LRU(SIZE, 2, key=next(keys), trainable_initial_state=True),
        min_gru=MinGRU(SIZE, 2, key=next(keys), trainable_initial_state=True),
        short=WindowedAttention(SIZE, 2, key=next(keys), window=2, heads=2),
        long=WindowedAttention(SIZE, 2, key=next(keys), window=12, heads=2),
        delay=Delay(jnp.zeros(SIZE), 3),
        graph=graph(next(keys)),
        chain=Sequential([Dense(SIZE, 1, key=next(keys)), Delay(jnp.zeros(1), 1)]),
    )
    return jtu.tree_map(
        lambda leaf: (
            leaf + 0.3 * jr.normal(next(keys), leaf.shape)
            if eqx.is_inexact_array(leaf)
            else leaf
        ),
        modules,
    )


def losses(outputs):
    """A number without what is not finite, and one that all of it has spoilt."""
    leaves = jtu.tree_leaves(outputs)
    kept = [jnp.where(jnp.isfinite(leaf), leaf, 0) for leaf in leaves]
    return (
        sum(jnp.vdot(jnp.cos(jnp.arange(leaf.size)), leaf.ravel()) for leaf in kept),
        sum(jnp.sum(leaf**2) for leaf in leaves),
    )


def measured(way):
    """A program that gives all outputs, and the gradients of both losses."""

    @eqx.filter_jit
    def run(network, state, xs):
        everything = (network, state, xs)
        differentiated, rest = eqx.partition(everything, eqx.is_inexact_array)

        def numbers(differentiated):
            result = way(*eqx.combine(differentiated, rest), IS_FIRST)
            return losses(result.output), (result.output, result.next_state)

        _, pullback, results = jax.vjp(numbers, differentiated, has_aux=True)
        gradients = [pullback(one)[0] for one in ((1.0, 0.0), (0.0, 1.0))]
        return results, gradients

    return run


@pytest.fixture(scope="module", params=[_linear_scan.in_parallel, _linear_scan.by_step])
def at_once(request):
    """As on a GPU, and as on a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_linear_scan, "_scanned", request.param)
        yield measured(unroll)


@pytest.fixture(scope="module")
def by_steps():
    return measured(unroll_by_step)


@pytest.mark.parametrize("time, episode", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_other_episodes_have_the_gradients_of_the_steps(
    network, at_once, by_steps, fault, time, episode, getkey
):
    state = jtu.tree_map(
        lambda leaf: leaf + 0.3 if eqx.is_inexact_array(leaf) else leaf,
        network.initialize_state(jr.split(getkey(), BATCH)),
    )
    inputs = jr.normal(getkey(), (LENGTH, BATCH, SIZE)).at[time, 1].set(fault)
    xs = {name: inputs for name in network.components} | {"graph": {"x": inputs}}
    found = at_once(network, state, xs)
    expected = by_steps(network, state, xs)
    pairs = zip(
        jtu.tree_leaves(found), jtu.tree_leaves_with_path(expected), strict=True
    )
    spoilt = {}
    for one, (path, other) in pairs:
        one, other = bits(one), bits(other)
        where = np.isfinite(other)
        if not np.allclose(one[where], other[where], rtol=2e-4, atol=2e-5):
            spoilt[jtu.keystr(path)] = (one, other)
    assert not sorted(spoilt)
    # That is not vacuous: of the inputs' gradients, all but the fault's episode.
    others = np.ones((LENGTH, BATCH), bool)
    others[episode, 1] = False
    for gradient in expected[1]:
        for leaf in jtu.tree_leaves(gradient[2]):
            assert np.all(np.isfinite(leaf[others]))
