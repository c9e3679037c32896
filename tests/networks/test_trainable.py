from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import optax
import pytest

from helpers import assert_close, tree_equal
from nnx_ppo_fn.networks._trainable import NonTrainable, partition_trainable
from nnx_ppo_fn.networks.containers import Sequential
from nnx_ppo_fn.networks.feedforward import Dense
from nnx_ppo_fn.networks.normalizer import Normalizer
from nnx_ppo_fn.networks.sampling_layers import CategoricalSampler, NormalTanhSampler
from nnx_ppo_fn.networks.variational import VariationalBottleneck


class Pair(eqx.Module):
    learned: Any
    fixed: Any


def test_inexact_arrays_train_unless_they_are_held():
    tree = Pair(
        learned={"float": jnp.ones(2), "half": jnp.ones(2, jnp.bfloat16)},
        fixed=[jnp.arange(2), 1.0, NonTrainable(Pair(jnp.ones(3), jnp.ones(1)))],
    )
    parameters, rest = partition_trainable(tree)
    assert [leaf.shape for leaf in jax.tree.leaves(parameters)] == [(2,), (2,)]
    assert tree_equal(
        eqx.filter(eqx.combine(parameters, rest), eqx.is_array),
        eqx.filter(tree, eqx.is_array),
    )
    assert rest.fixed[1] == 1.0 and rest.fixed[2].value.learned.shape == (3,)


@jax.numpy_dtype_promotion("standard")  # optax multiplies integers and floats
def test_weight_decay_moves_weights_and_no_statistics(getkey):
    network = Sequential(
        [Normalizer(3), Dense(3, 4, key=getkey()), VariationalBottleneck(2)]
    )
    samples = 5 + jnp.arange(24, dtype=jnp.float32).reshape(2, 4, 3)
    network = network.update_statistics((samples, None, None))
    parameters, rest = partition_trainable(network)
    optimiser = optax.adamw(learning_rate=0.1, weight_decay=0.5)
    gradient = jax.tree.map(jnp.zeros_like, parameters)
    updates, _ = optimiser.update(gradient, optimiser.init(parameters), parameters)
    stepped = eqx.combine(optax.apply_updates(parameters, updates), rest)

    # Decoupled decay: with no gradient, weights shrink by 1 - 0.1 * 0.5.
    np.testing.assert_allclose(stepped[1].kernel, 0.95 * network[1].kernel, rtol=1e-6)
    assert tree_equal(stepped[0].statistics, network[0].statistics)
    assert stepped[2].kl_weight == 1.0
    # What goes wrong without the partition: the mean decays too.
    naive = eqx.filter(network, eqx.is_inexact_array)
    updates, _ = optimiser.update(
        jax.tree.map(jnp.zeros_like, naive), optimiser.init(naive), naive
    )
    assert jnp.all(updates.layers[0].mean < -0.1)


@pytest.mark.parametrize(
    "build",
    [
        lambda value: VariationalBottleneck(2, kl_weight=value),
        lambda value: NormalTanhSampler(value, min_std=value, std_scale=value),
        lambda value: CategoricalSampler(value),
        lambda value: Normalizer(2, clip=value),
    ],
)
def test_an_array_for_a_coefficient_does_not_train(build):
    """It would be trained away: a smaller weight makes a smaller loss."""
    swept = build(jnp.float32(0.5))
    assert not jtu.tree_leaves(partition_trainable(swept)[0])
    x = jnp.ones((4, 2 if isinstance(swept, Normalizer) else 4))
    keys = jr.split(jr.key(0), 4)
    swept_out, plain_out = (
        module(module.initialize_state(keys), x) for module in (swept, build(0.5))
    )
    assert_close(swept_out, plain_out)


def test_whole_numbers_are_coefficients_too():
    assert VariationalBottleneck(2, kl_weight=1).kl_weight == 1.0
