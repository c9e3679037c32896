"""What Equinox does with trees works on networks: vmap, surgery, modes, files."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from helpers import assert_close, mlp_network, small_network, tree_equal
from nnx_ppo_fn import (
    Dense,
    Lift,
    LSTM,
    partition_trainable,
    Sequential,
    Stateless,
    unroll,
    VariationalBottleneck,
)
from pages import PAGES, python_blocks


MEMBERS, BATCH, LENGTH = 3, 4, 5


@functools.cache
def ensemble_class():
    """The `Ensemble` of the page on Equinox."""
    blocks = python_blocks(PAGES / "equinox.md")
    (block,) = [block for block in blocks if "class Ensemble" in block]
    namespace = {"__name__": "equinox_page", "eqx": eqx, "jax": jax, "jr": jr}
    exec(compile(block, "equinox.md", "exec"), namespace)
    return namespace["Ensemble"]


def stateful_and_noisy(key):
    """A member with a memory, a chain of keys, a loss and metrics."""
    keys = jr.split(key)
    memory = LSTM(3, 4, key=keys[0], trainable_initial_state=True)
    dropout = Lift(eqx.nn.Dropout(0.5))
    return Sequential([memory, VariationalBottleneck(2), dropout])


def member(tree, index, *, axis=0):
    """One member's part of arrays that hold all of them along an axis."""
    return jtu.tree_map(
        lambda leaf: jnp.moveaxis(leaf, axis, 0)[index] if eqx.is_array(leaf) else leaf,
        tree,
    )


def test_an_ensemble_is_a_loop_over_its_members(getkey):
    networks = eqx.filter_vmap(stateful_and_noisy)(jr.split(getkey(), MEMBERS))
    ensemble = ensemble_class()(networks, MEMBERS)
    state = ensemble.initialize_state(jr.split(getkey(), BATCH))
    assert all(leaf.shape[:2] == (BATCH, MEMBERS) for leaf in jtu.tree_leaves(state))
    xs = jr.normal(getkey(), (LENGTH, BATCH, 3))
    is_first = jnp.zeros((LENGTH, BATCH), bool).at[2, 1].set(True)
    result = unroll(ensemble, state, xs, is_first)
    assert result.output.shape == (LENGTH, BATCH, MEMBERS, 2)
    alone = [
        unroll(member(networks, index), member(state, index, axis=1), xs, is_first)
        for index in range(MEMBERS)
    ]
    for index, expected in enumerate(alone):
        assert_close(result.output[:, :, index], expected.output)
        assert_close(member(result.next_state, index, axis=1), expected.next_state)
    loss = sum(np.asarray(one.regularization_loss) for one in alone)
    np.testing.assert_allclose(result.regularization_loss, loss, rtol=1e-5)
    divergence = [one.metrics["1"]["kl_divergence"] for one in alone]
    np.testing.assert_allclose(
        result.metrics["1"]["kl_divergence"], np.mean(divergence, axis=0), rtol=1e-5
    )


def test_seeds_of_a_network_can_be_mapped_over(getkey):
    keys = jr.split(getkey(), MEMBERS)
    networks = eqx.filter_vmap(lambda key: small_network(key, 3))(keys)
    x = jr.normal(getkey(), (BATCH, 3))
    birth = jr.split(getkey(), BATCH)

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(eqx.if_array(0), None))
    def values(network, x):
        state = network.initialize_state(birth)
        return network(state, x).output.value_estimates

    one = small_network(keys[1], 3)
    expected = one(one.initialize_state(birth), x).output.value_estimates
    assert_close(values(networks, x)[1], expected)


def outputs(network, x, key):
    state = network.initialize_state(jr.split(key, len(x)))
    return network(state, x).output


def test_layers_activations_and_rates_can_be_replaced(getkey):
    dense = Dense(3, 2, key=getkey(), activation=jnp.tanh)
    dropout = Lift(eqx.nn.Dropout(0.5))
    network = Sequential([dense, Stateless(jnp.abs), dropout])
    x, key = jr.normal(getkey(), (BATCH, 3)), getkey()

    linear = eqx.tree_at(lambda network: network[0].activation, network, jnp.negative)
    assert linear[0].kernel is dense.kernel
    other = eqx.tree_at(lambda network: network[1], linear, Stateless(jnp.square))
    every = eqx.tree_at(lambda network: network[2].layer.p, other, 0.0)
    expected = np.square(np.float64(x) @ np.float64(dense.kernel))
    np.testing.assert_allclose(outputs(every, x, key), expected, rtol=1e-5, atol=1e-7)
    nothing = eqx.tree_at(lambda network: network[2].layer.p, network, 1.0)
    np.testing.assert_array_equal(outputs(nothing, x, key), 0)

    memory = LSTM(3, 2, key=getkey())
    grown = eqx.tree_at(lambda network: network[0], network, memory)
    assert outputs(grown, x, key).shape == (BATCH, 2)


def test_inference_mode_silences_a_whole_network_and_is_undone(getkey):
    network = Sequential([Lift(eqx.nn.Dropout(0.5)), small_network(getkey(), 3)])
    x = jr.normal(getkey(), (BATCH, 3))
    one, other = getkey(), getkey()
    calm = eqx.nn.inference_mode(network)
    assert tree_equal(outputs(calm, x, one), outputs(calm, x, other))
    awake = eqx.nn.inference_mode(calm, value=False)
    assert not tree_equal(outputs(awake, x, one), outputs(awake, x, other))
    assert tree_equal(outputs(awake, x, one), outputs(network, x, one))


def test_a_network_can_be_taken_apart_and_put_together(getkey):
    network = small_network(getkey(), 3)
    parameters, rest = partition_trainable(network)
    assert eqx.tree_equal(eqx.combine(parameters, rest), network)
    arrays, static = eqx.partition(network, eqx.is_array)
    x, key = jr.normal(getkey(), (BATCH, 3)), getkey()
    expected = outputs(network, x, key)
    assert tree_equal(outputs(eqx.combine(arrays, static), x, key), expected)
    statistics = jtu.tree_leaves(parameters.layers[0])
    assert statistics == [] and jtu.tree_leaves(rest.layers[0])


def test_gradients_of_equinox_reach_lifted_layers(getkey):
    network = Sequential([Lift(eqx.nn.Linear(3, 2, key=getkey()))])
    x = jr.normal(getkey(), (BATCH, 3))
    gradient = eqx.filter_grad(lambda network: network(((),), x).output.sum())(network)
    expected = np.broadcast_to(np.float64(x).sum(axis=0), (2, 3))
    np.testing.assert_allclose(gradient[0].layer.weight, expected, rtol=1e-5)
    np.testing.assert_array_equal(gradient[0].layer.bias, BATCH)


@pytest.mark.parametrize("make", [small_network, mlp_network])
def test_a_saved_network_is_the_same_network(make, getkey, tmp_path):
    network = make(getkey(), 3)
    eqx.tree_serialise_leaves(tmp_path / "network.eqx", network)
    like = eqx.filter_eval_shape(make, getkey(), 3)
    for other in (make(getkey(), 3), like):
        loaded = eqx.tree_deserialise_leaves(tmp_path / "network.eqx", other)
        assert tree_equal(
            eqx.filter(loaded, eqx.is_array), eqx.filter(network, eqx.is_array)
        )
