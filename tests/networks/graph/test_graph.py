from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from graphs import twelve_populations
from helpers import assert_close, tree_equal
from nnx_ppo_fn import (
    Dense,
    LSTM,
    Normalizer,
    NormalTanhSampler,
    output,
    partition_trainable,
    PopulationGraphBuilder,
    Sequential,
    Stateless,
    StatelessModule,
    summary,
    unroll,
    VariationalBottleneck,
)
from nnx_ppo_fn.networks.unroll import unroll_by_step


KEYS = jr.split(jr.key(0), 4)


class Report(StatelessModule):
    """Passes on what it gets, and says the sum of it in every way there is."""

    def __call__(self, state, x, rollout_extras=None):
        total = jnp.sum(x, axis=-1)
        return output(
            x,
            batch=len(x),
            regularization_loss=total,
            metrics={"total": total},
            rollout_extras=rollout_extras,
        )


def reporting():
    return (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input("a", 2, input_from="x", activation=Report())
        .add_output("b", 2, activation=jnp.tanh)
        .connect("a", "b", transform=Report())
        .connect("a", "b", transform=Report(), delay=1)
        .finalize()
    )


def test_the_activation_comes_once_and_after_the_sum():
    graph = reporting()
    x = {"x": jnp.arange(8.0).reshape(4, 2)}
    state = graph.initialize_state(KEYS)
    first = graph(state, x)
    np.testing.assert_allclose(first.output["b"], np.tanh(x["x"]), rtol=1e-6)
    second = graph(first.next_state, {"x": jnp.ones((4, 2))})
    np.testing.assert_allclose(second.output["b"], np.tanh(x["x"] + 1), rtol=1e-6)


def test_regularisation_and_metrics_are_kept_for_every_environment():
    graph = reporting()
    x = {"x": jnp.arange(8.0).reshape(4, 2)}
    first = graph(graph.initialize_state(KEYS), x)
    total = np.sum(x["x"], axis=-1)
    # Once in the population and once in the connection; the delayed one is silent yet.
    np.testing.assert_allclose(first.regularization_loss, 2 * total)
    np.testing.assert_array_equal(first.metrics["a"]["total"], total)
    np.testing.assert_array_equal(first.metrics["a->b"]["total"], total)
    np.testing.assert_array_equal(first.metrics["a->b (2)"]["total"], 0)
    assert set(first.metrics) == {"a", "a->b", "a->b (2)"}


def test_a_population_that_gets_nothing_is_its_activation_of_zero():
    graph = (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input("a", 2, input_from="x")
        .add_population("tonic", 2, activation=jnp.cos)
        .add_output("b", 2)
        .connect("tonic", "b", transform=jnp.sin)
        .finalize()
    )
    state = graph.initialize_state(KEYS)
    first = graph(state, {"x": jnp.zeros((4, 2))})
    np.testing.assert_allclose(first.output["b"], np.sin(1.0), rtol=1e-6)
    at_once = unroll(graph, state, {"x": jnp.zeros((3, 4, 2))}, jnp.zeros((3, 4), bool))
    np.testing.assert_allclose(at_once.output["b"], np.sin(1.0), rtol=1e-6)


def test_statistics_on_a_connection_move():
    normalizing = Sequential([Normalizer(2), Dense(2, 2, key=jr.key(1))])
    graph = (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input("a", 2, input_from="x")
        .add_output("b", 2)
        .connect("a", "b", transform=normalizing, delay=1)
        .finalize()
    )
    xs = jr.normal(jr.key(2), (6, 4, 2)) + 3.0
    is_first = jnp.zeros((6, 4), bool)
    rolled = unroll(graph, graph.initialize_state(KEYS), {"x": xs}, is_first)
    updated = graph.update_statistics(rolled.rollout_extras)
    seen = np.concatenate([np.zeros((1, 4, 2)), xs[:-1]]).reshape(-1, 2)
    mean = updated.connections["a->b"].transform.layers[0].mean
    np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-5)


def remembering_cycle(there, back):
    """A cycle in which all must be given back to a replay that there is to give.

    On the way there a sampler behind a normaliser, then a bottleneck; on the way back
    an LSTM. One population normalises its activity.
    """
    keys = jr.split(jr.key(3), 4)
    sampling = [
        Normalizer(2),
        Dense(2, 4, key=keys[0]),
        NormalTanhSampler(0.1, min_std=0.3),
        Stateless(attrgetter("action")),
    ]
    bottleneck = [Dense(2, 4, key=keys[1]), VariationalBottleneck(2, 0.5)]
    return (
        PopulationGraphBuilder(key=keys[2])
        .add_input("a", 2, input_from="x", activation=jnp.tanh)
        .add_population("b", 2, activation=[Normalizer(2), jnp.tanh])
        .add_population("c", 2)
        .add_output("y", 1)
        .connect("a", "b", transform=sampling, delay=there)
        .connect("b", "c", transform=bottleneck)
        .connect("c", "a", transform=LSTM(2, 2, key=keys[3]), delay=back)
        .connect("c", "y")
        .finalize()
    )


@eqx.filter_jit
def rollout_and_replay(graph, state, xs, is_first, method):
    """A rollout, and its replay under other weights with its gradient."""
    rollout = method(graph, state, xs, is_first)
    parameters, rest = partition_trainable(graph)

    def loss(parameters):
        network = eqx.combine(parameters, rest)
        replayed = method(network, state, xs, is_first, rollout.rollout_extras)
        weights = jnp.cos(jnp.arange(is_first.size, dtype=jnp.float32))
        numbers = replayed.output["y"][..., 0] + replayed.regularization_loss
        return jnp.sum(weights.reshape(is_first.shape) * numbers), replayed

    others = jax.tree.map(lambda leaf: leaf + 0.1, parameters)
    gradient, replayed = jax.grad(loss, has_aux=True)(others)
    updated = graph.update_statistics(rollout.rollout_extras)
    return rollout, replayed, gradient, eqx.filter(updated, eqx.is_array)


@pytest.mark.parametrize(
    "there, back, length", [(0, 1, 5), (1, 2, 7), (0, 3, 1), (0, 3, 0)]
)
def test_what_is_given_back_inside_of_a_cycle(there, back, length):
    """Blocks of one step, several with a remainder, a part of one, and none at all."""
    graph = remembering_cycle(there, back)
    cycle = next(one for one in graph.components if one.block)
    assert set(cycle.members) == {"a", "b", "c"}
    assert (cycle.block == 1) == (there + back == 1)
    xs = {"x": jr.normal(jr.key(4), (length, 4, 2))}
    is_first = jr.bernoulli(jr.key(5), 0.3, (length, 4))
    is_first = is_first.at[:, 0].set(False).at[:, 1].set(jnp.arange(length) == 2)
    state = jax.tree.map(
        lambda leaf: leaf + 0.3 if eqx.is_inexact_array(leaf) else leaf,
        graph.initialize_state(KEYS),
    )
    at_once, by_steps = (
        rollout_and_replay(graph, state, xs, is_first, method)
        for method in (unroll, unroll_by_step)
    )
    assert_close(at_once, by_steps, tolerance=1e-4)
    rollout, replayed, gradient, updated = at_once
    assert_close(rollout, by_steps[0], tolerance=1e-5)
    given = rollout.rollout_extras
    assert tree_equal(replayed.rollout_extras, given)
    assert {name for name in given if jtu.tree_leaves(given[name])} == {"a->b", "b"}
    if length == 0:
        assert tree_equal(rollout.next_state, state)
    else:
        assert not np.allclose(replayed.output["y"], rollout.output["y"])
        assert all(np.any(leaf != 0) for leaf in jtu.tree_leaves(gradient))
        assert np.all(updated.populations["b"].activation[0].mean != 0)


def test_integers_are_taken_as_numbers():
    graph = reporting()
    x = {"x": jnp.arange(8, dtype=jnp.int32).reshape(4, 2)}
    state = graph.initialize_state(KEYS)
    floats = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), x)
    assert tree_equal(graph(state, x), graph(state, floats))


def test_a_silent_graph_draws_nothing():
    graph = eqx.nn.inference_mode(twelve_populations(jr.key(0)))
    x = {"image": jr.normal(jr.key(1), (4, 2)), "touch": jr.normal(jr.key(2), (4, 2))}
    values = [
        graph(graph.initialize_state(jr.split(jr.key(seed), 4)), x).output
        for seed in (3, 4)
    ]
    assert tree_equal(*values)


def test_the_summary_has_a_row_for_every_population_and_connection():
    rows = {row.place: row for row in summary(reporting()).rows}
    assert rows[""].carry == "float32[1, 2], int32"
    assert set(rows) == {"", ".a", ".b", ".a->b", ".a->b (2)"}
