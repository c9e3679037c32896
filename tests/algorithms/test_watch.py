"""The watch on the law: what training sees, and what the check stops before it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from helpers import small_config
from nnx_ppo_fn import (
    CategoricalSampler,
    Dense,
    GRU,
    LawViolation,
    LSTM,
    new_training_state,
    Normalizer,
    NormalTanhSampler,
    Parallel,
    PPOAdapter,
    PPOConfig,
    Sequential,
    Stateless,
    train_ppo,
    TrainingFault,
    VariationalBottleneck,
)
from nnx_ppo_fn.algorithms.tolerance import replay_tolerance
from nnx_ppo_fn.envs import make
from wrong_modules import WRONG


SIZE = 3
TOLERANCE = replay_tolerance(PPOConfig(), jnp.zeros(1))
SEEN_IN_TRAINING = {
    "a draw shaped by the batch",
    "batch statistics in the forward pass",
    "statistics written in the forward pass",
    "state of another environment after a reshape",
}


class Walk(eqx.Module):
    """A random walk of vectors, cut after 7 steps, that takes any action."""

    def reset(self, key):
        walk, counter = jr.split(key)
        state = make("probe:counting").reset(counter)
        state = eqx.tree_at(lambda s: s.obs, state, jr.normal(walk, (SIZE,)))
        return eqx.tree_at(lambda s: s.reward, state, jnp.float32(0))

    def step(self, state, action):
        pushed = sum(jnp.sum(a.astype(jnp.float32)) for a in jax.tree.leaves(action))
        counted = make("probe:counting").step(
            eqx.tree_at(lambda s: s.obs, state, jnp.zeros(1)), jnp.int32(0)
        )
        observation = 0.9 * state.obs + 0.1 * pushed
        reward = jnp.sin(jnp.sum(observation))
        return eqx.tree_at(lambda s: (s.obs, s.reward), counted, (observation, reward))


def heads(key, size):
    """Both kinds of sampler side by side, and a critic."""
    keys = jr.split(key, 3)
    return PPOAdapter(
        Parallel(
            push=Sequential([Dense(size, 4, key=keys[0]), NormalTanhSampler(0.01)]),
            choice=Sequential([Dense(size, 3, key=keys[1]), CategoricalSampler(0.01)]),
        ),
        Dense(size, 1, key=keys[2]),
    )


def add(features):
    return features["slow"] + features["fast"]


def everything(key):
    """Every module of the library in one network."""
    keys = jr.split(key, 6)
    return Sequential(
        [
            Normalizer(SIZE),
            Parallel(
                slow=LSTM(SIZE, 8, key=keys[0], trainable_initial_state=True),
                fast=GRU(SIZE, 8, key=keys[1], trainable_initial_state=True),
            ),
            Stateless(add),
            Dense(8, 12, key=keys[2], activation=jnp.tanh),
            VariationalBottleneck(6),
            Normalizer(6),
            heads(keys[3], 6),
        ]
    )


def watched(network, config):
    """`replay/log_ratio_max` of every iteration."""
    ratios = []
    train_ppo(
        Walk(),
        network,
        config,
        log_fn=lambda metrics, step: ratios.append(metrics["replay/log_ratio_max"]),
    )
    return ratios


@pytest.mark.parametrize("learning_rate", [0.0, 1e-2])
def test_a_network_of_every_module_replays_what_it_did(learning_rate):
    ratios = watched(
        everything(jr.key(0)),
        small_config(rollout_length=12, total_steps=288, learning_rate=learning_rate),
    )
    assert len(ratios) == 3
    assert max(ratios) <= 1e-4


def wrong_network(wrong, key):
    """The wrong module in a network that could otherwise train."""
    keys = jr.split(key, 3)
    if not wrong.sampler:
        return Sequential(
            [Dense(SIZE, SIZE, key=keys[0]), wrong.build(SIZE), heads(keys[1], SIZE)]
        )
    return PPOAdapter(
        Sequential([Dense(SIZE, 2 * SIZE, key=keys[0]), wrong.build(SIZE)]),
        Dense(SIZE, 1, key=keys[1]),
    )


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_every_wrong_module_is_seen_or_stopped(wrong):
    network = wrong_network(wrong, jr.key(0))
    config = small_config(rollout_length=12, total_steps=288, learning_rate=0.0)
    if wrong.name in SEEN_IN_TRAINING:
        with pytest.raises(
            TrainingFault, match="does not reproduce the rollout"
        ) as info:
            watched(network, config)
        ratio = info.value.result.final_metrics["replay/log_ratio_max"]
        assert ratio > 10 * TOLERANCE
    else:
        with pytest.raises(LawViolation) as info:
            new_training_state(Walk(), network, config, key=jr.key(0))
        assert type(wrong.build(SIZE)).__name__ in str(info.value)


def test_a_tolerance_of_ones_own_counts():
    wrong = next(w for w in WRONG if w.name == "batch statistics in the forward pass")
    config = small_config(total_steps=40, learning_rate=0.0)
    ppo = dataclasses.replace(config.ppo, replay_tolerance=1e9)
    network = wrong_network(wrong, jr.key(0))
    (ratio,) = watched(network, dataclasses.replace(config, ppo=ppo))
    assert ratio > 10 * TOLERANCE
