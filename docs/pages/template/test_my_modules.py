"""Every module obeys the laws, and a network of them trains."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from my_modules import Leaky, make_network, Residual, SynapticNoise

from nnx_ppo_fn import (
    check_module,
    new_training_state,
    ppo_step,
    PPOConfig,
    Status,
    TrainConfig,
)
from nnx_ppo_fn.envs import make


MODULES = {
    "SynapticNoise": SynapticNoise(),
    "SynapticNoise, episode by episode": SynapticNoise(fresh_keys=True),
    "Leaky": Leaky(3, 4, key=jr.key(0)),
    "Residual": Residual(Leaky(3, 3, key=jr.key(0))),
    "network": make_network(3, 2, key=jr.key(0)),
}


@pytest.mark.parametrize("name", MODULES)
def test_obeys_the_laws(name):
    """On random inputs like the example, with resets, as rollout and as replay."""
    check_module(MODULES[name], jnp.ones((8, 3)), key=jr.key(1))


def test_trains():
    """One iteration, in which the replay gives back the rollout's likelihoods."""
    env = make("hidden-cartpole")
    network = make_network(env.observation_size, env.action_size, key=jr.key(2))
    config = TrainConfig(PPOConfig(n_envs=4, rollout_length=8, n_minibatches=2))
    state = new_training_state(env, network, config, key=jr.key(3))
    state, metrics = jax.jit(ppo_step, static_argnums=0)(env, state, config)
    assert state.status == Status.HEALTHY
    assert metrics["replay/log_ratio_max"] < 1e-4
