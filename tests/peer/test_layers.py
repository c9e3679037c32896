"""Modules that draw nothing give the original's numbers, step by step."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from flax import nnx

from nnx_ppo_fn._tree import is_key
from peer.original import as_released, assert_same_numbers, our_steps, stepper
from peer.pairs import PAIRS


STEPS, BATCH = 20, 3
KEYS = jr.split(jr.key(1), BATCH)
IS_FIRST = np.random.default_rng(2).random((STEPS, BATCH)) < 0.2
IS_FIRST[0] = [True, False, True]
IS_FIRST = jnp.asarray(IS_FIRST)


def inputs(example, seed=3):
    """Random inputs `[T, B, ...]` like the example of one environment."""
    generator = np.random.default_rng(seed)

    def draw(leaf):
        numbers = generator.normal(1.0, 2.0, (STEPS, BATCH, *leaf.shape))
        return jnp.asarray(numbers, jnp.float32)

    return jtu.tree_map(draw, example)


def without_keys(carry):
    return [leaf for leaf in jtu.tree_leaves(carry) if not is_key(leaf)]


def assert_same_steps(ours, theirs, carry):
    assert_same_numbers(ours.output, theirs.output)
    assert_same_numbers(ours.regularization_loss, theirs.regularization_loss)
    assert_same_numbers(ours.rollout_extras, theirs.rollout_extras)
    our_carries = carry(ours.next_state)
    assert_same_numbers(without_keys(our_carries), theirs.next_state)


@pytest.mark.parametrize("name", PAIRS)
def test_outputs_and_carries_over_time(name):
    pair = PAIRS[name]()
    with as_released():
        their_state = pair.theirs.initialize_state(BATCH)
    our_state = pair.ours.initialize_state(KEYS)
    assert_same_numbers(without_keys(pair.carry(our_state)), their_state)

    xs = inputs(pair.example)
    theirs = stepper(pair.theirs)(their_state, xs, IS_FIRST)
    ours = our_steps(pair.ours, our_state, xs, IS_FIRST)
    assert_same_steps(ours, theirs, pair.carry)


@pytest.mark.parametrize("name", ["PPOAdapter", "make_mlp_actor_critic"])
def test_a_replay_has_the_likelihoods_of_the_recorded_actions(name):
    pair = PAIRS[name]()
    with as_released():
        their_state = pair.theirs.initialize_state(BATCH)
    our_state = pair.ours.initialize_state(KEYS)
    seen, shifted = inputs(pair.example), inputs(pair.example, seed=4)
    run = stepper(pair.theirs)
    theirs = run(their_state, seen, IS_FIRST)
    ours = our_steps(pair.ours, our_state, seen, IS_FIRST)
    theirs = run(their_state, shifted, IS_FIRST, theirs.rollout_extras)
    ours = our_steps(pair.ours, our_state, shifted, IS_FIRST, ours.rollout_extras)
    assert_same_numbers(ours.output, theirs.output)
    assert jnp.std(ours.output.loglikelihoods) > 0.1


@nnx.jit
def their_update(theirs, extras):
    theirs.update_statistics(extras)


@eqx.filter_jit
def our_update(ours, extras):
    return ours.update_statistics(extras)


@pytest.mark.parametrize("name", ["Normalizer", "Normalizer of a tree", "Sequential"])
def test_statistics_over_three_rollouts(name):
    theirs, ours, example, carry = PAIRS[name]()
    with as_released():
        their_state = theirs.initialize_state(BATCH)
    our_state = ours.initialize_state(KEYS)
    run = stepper(theirs)
    for seed in range(3):
        xs = inputs(example, seed)
        their_out = run(their_state, xs, IS_FIRST)
        our_out = our_steps(ours, our_state, xs, IS_FIRST)
        assert_same_steps(our_out, their_out, carry)
        with as_released():
            their_update(theirs, their_out.rollout_extras)
        ours = our_update(ours, our_out.rollout_extras)

    their_normalizer = theirs.layers[0] if name == "Sequential" else theirs
    our_normalizer = ours.layers[0] if name == "Sequential" else ours
    seen = STEPS * BATCH * 3
    their_std = jtu.tree_map(
        lambda m2: np.sqrt(m2 / seen), their_normalizer.M2.get_value()
    )
    assert_same_numbers(our_normalizer.mean, their_normalizer.mean.get_value())
    assert_same_numbers(our_normalizer.std, their_std)
