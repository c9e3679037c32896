import dataclasses
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import jaxtyping
import pytest

from helpers import assert_close, small_network
from nnx_ppo_fn import (
    initial_rollout_state,
    partition_trainable,
    replay,
    Sequential,
    Stateless,
    unroll_env,
)
from nnx_ppo_fn.envs import make


@pytest.fixture(scope="module")
def recorded():
    env = make("probe:counting")
    network = small_network(jr.key(0), env.observation_size)
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 6))
    end, rollout = jax.jit(lambda s: unroll_env(env, network, s, 11))(start)
    return network, end, rollout


def test_unchanged_weights_give_the_recorded_outputs(recorded):
    network, end, rollout = recorded
    replayed = replay(network, rollout)
    assert jnp.sum(rollout.is_first) > 6
    assert_close(replayed.output, rollout.transitions.network_output)
    assert_close(replayed.next_state, end.carry)


def test_a_minibatch_replays_as_the_whole_does(recorded):
    network, _, rollout = recorded
    rows = jnp.array([5, 0, 3])
    part = replay(network, rollout.minibatch(rows))
    whole = replay(network, rollout)
    assert_close(part.output, jax.tree.map(lambda leaf: leaf[:, rows], whole.output))


def test_new_weights_keep_the_actions_and_change_their_likelihood(recorded):
    network, _, rollout = recorded
    parameters, rest = partition_trainable(network)
    moved = eqx.combine(jtu.tree_map(lambda p: 1.3 * p + 0.05, parameters), rest)
    replayed = replay(moved, rollout).output
    old = rollout.transitions.network_output
    assert jnp.array_equal(replayed.actions, old.actions)
    assert jnp.max(jnp.abs(replayed.loglikelihoods - old.loglikelihoods)) > 1e-2


def value_and_gradient(network, rollout, **cut):
    parameters, rest = partition_trainable(network)

    def loss(parameters):
        replayed = replay(eqx.combine(parameters, rest), rollout, **cut)
        values, likelihoods = jtu.tree_leaves(
            (replayed.output.value_estimates, replayed.output.loglikelihoods)
        )
        weights = jnp.cos(jnp.arange(values.size, dtype=jnp.float32))
        total = jnp.vdot(weights, (values + likelihoods).ravel())
        return total + jnp.sum(replayed.regularization_loss), replayed

    return jax.value_and_grad(loss, has_aux=True)(parameters)


@pytest.mark.parametrize("rematerialize", [False, True])
@pytest.mark.parametrize("chunk_length", [1, 4, 11, 50])
def test_how_time_is_cut_changes_nothing(recorded, chunk_length, rematerialize):
    network, _, rollout = recorded
    parameters, rest = partition_trainable(network)
    moved = eqx.combine(jtu.tree_map(lambda p: 1.3 * p + 0.05, parameters), rest)
    (_, expected), gradient = value_and_gradient(moved, rollout)
    (_, cut), its_gradient = value_and_gradient(
        moved, rollout, chunk_length=chunk_length, rematerialize=rematerialize
    )
    assert_close(cut, expected)
    assert_close(its_gradient, gradient, tolerance=1e-4)
    assert all(jnp.any(leaf != 0) for leaf in jtu.tree_leaves(gradient))


def test_rematerialising_keeps_less_for_the_gradient(recorded):
    """The residuals between the forward and the backward pass, counted in bytes."""
    network, _, rollout = recorded
    parameters, rest = partition_trainable(network)

    def kept(**cut):
        def values(parameters):
            replayed = replay(eqx.combine(parameters, rest), rollout, **cut)
            return replayed.output.value_estimates

        _, pullback = jax.vjp(values, parameters)
        return sum(leaf.nbytes for leaf in jtu.tree_leaves(pullback))

    chunk = {"chunk_length": 2}
    assert kept(**chunk, rematerialize=True) < kept(**chunk)


def test_groups_may_hold_nothing(recorded):
    """Leaves of size 0, as in environments without an observation of a kind."""
    network, _, rollout = recorded
    nothing = jnp.zeros((11, 6, 0))
    transitions = dataclasses.replace(
        rollout.transitions, obs={"seen": rollout.transitions.obs, "nothing": nothing}
    )
    blind = Sequential([Stateless(operator.itemgetter("seen")), network])
    transitions = dataclasses.replace(
        transitions, rollout_extras=(None, transitions.rollout_extras)
    )
    carry = ((), rollout.initial_carry)
    wider = dataclasses.replace(
        rollout, transitions=transitions, initial_carry=carry
    ).minibatch(jnp.array([[0, 1, 2]] * 2))
    replayed = replay(blind, wider, n_shards=3)
    assert_close(replayed.output, rollout.transitions.network_output)
    empty = jtu.tree_map(lambda leaf: leaf[:0], (rollout.is_first, rollout.transitions))
    none = dataclasses.replace(rollout, is_first=empty[0], transitions=empty[1])
    replayed = replay(network, none, n_shards=2, chunk_length=3)
    assert replayed.output.value_estimates.shape == (0, 6)
    assert_close(replayed.next_state, rollout.initial_carry)


@pytest.mark.parametrize(
    "settings, error, message",
    [
        ({"chunk_length": 0}, ValueError, "chunk_length must be at least 1, got 0"),
        ({"chunk_length": 2.5}, TypeError, "chunk_length must be an integer, got 2.5"),
        ({"n_shards": 0}, ValueError, "n_shards must be at least 1, got 0"),
        ({"n_shards": True}, TypeError, "n_shards must be an integer, got True"),
        ({"n_shards": 4}, ValueError, "6 environments .* n_shards=4 .*divisor of 6"),
        ({"rematerialize": "no"}, TypeError, "rematerialize must be True or False"),
    ],
)
def test_settings_that_are_none_are_refused(recorded, settings, error, message):
    network, _, rollout = recorded
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(error, match=message):
            replay(network, rollout, **settings)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
