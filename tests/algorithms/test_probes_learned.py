"""Trained networks reach the known values and returns of the probe environments."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import mlp_network
from nnx_ppo_fn import (
    EvalConfig,
    initial_rollout_state,
    make_recurrent_actor_critic,
    PPOConfig,
    train_ppo,
    TrainConfig,
    unroll_env,
)
from nnx_ppo_fn.envs import make


DISCOUNT = 0.8
CONFIG = TrainConfig(
    ppo=PPOConfig(
        n_envs=32,
        rollout_length=16,
        total_steps=40_960,
        learning_rate=1e-2,
        learning_rate_final_fraction=0.02,
        discounting_factor=DISCOUNT,
    ),
    eval=EvalConfig(enabled=False),
    seed=1,
)


def trained(env, network, **changes):
    ppo = dataclasses.replace(CONFIG.ppo, **changes)
    return train_ppo(env, network, dataclasses.replace(CONFIG, ppo=ppo)).network


def played(env, network):
    """Observations, values and returns of every step that a trained network plays."""
    start = initial_rollout_state(env, network, jr.split(jr.key(2), 64))
    _, rollout = jax.jit(lambda s: unroll_env(env, network, s, 12))(start)
    steps = rollout.transitions
    returns = steps.metrics["episode"]["return"][steps.done]
    return steps.obs, steps.network_output.value_estimates, returns


@pytest.mark.parametrize(
    "name",
    ["value", "value-of-observation", "discounting", "action", "action-of-observation"],
)
def test_a_memoryless_network_learns_the_values(name):
    env = make(f"probe:{name}")
    network = trained(env, mlp_network(jr.key(0), env.observation_size))
    observations, values, returns = played(env, network)
    expected = env.optimal_value(observations, DISCOUNT)
    np.testing.assert_allclose(values, expected, atol=0.12)
    if name.startswith("action"):
        assert jnp.mean(returns) > 0.95


@pytest.mark.parametrize("limit", [1, 4])
def test_a_time_limit_is_seen_through(limit):
    """Reward 1 for ever is worth 1 / (1 - 0.8) = 5, at every step of a cut episode."""
    env = make("probe:truncation", max_episode_length=limit)
    network = trained(env, mlp_network(jr.key(0), env.observation_size))
    _, values, _ = played(env, network)
    np.testing.assert_allclose(values, 5.0, atol=0.25)


def test_an_advantage_of_zero_at_every_time_limit_teaches_nothing():
    """The control: episodes of one step, treated as nnx-ppo treats them."""
    env = make("probe:truncation", max_episode_length=1)
    network = mlp_network(jr.key(0), env.observation_size)
    _, values, _ = played(env, trained(env, network, truncation="nnx_ppo"))
    _, untrained, _ = played(env, network)
    np.testing.assert_allclose(values, untrained, atol=1e-3)
    assert jnp.max(jnp.abs(values - 5.0)) > 2


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_memory_recalls_the_cue(cell):
    env = make("probe:memory")
    network = make_recurrent_actor_critic(
        env.observation_size,
        env.action_size,
        key=jr.key(0),
        cell=cell,
        hidden_features=16,
        head_sizes=(16,),
        discrete=True,
    )
    _, _, returns = played(env, trained(env, network))
    assert jnp.mean(returns) > 0.95


def test_without_a_memory_the_cue_is_lost():
    env = make("probe:memory")
    network = trained(env, mlp_network(jr.key(0), env.observation_size))
    _, _, returns = played(env, network)
    assert abs(jnp.mean(returns)) < 0.3
